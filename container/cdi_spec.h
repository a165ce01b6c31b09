#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::gpu {

struct CdiDevice {
  std::string name;  // "0", "1", "all", …
  // What a container that gets the device needs of the host: device nodes, sources of mounts,
  // hooks. Absolute paths.
  std::vector<std::string> needs;
};

// What is read of one Container Device Interface spec: the kind it declares, its devices, and what
// podman may stumble over (https://github.com/cncf-tags/container-device-interface, SPEC.md, "CDI
// JSON Specification"). A spec is JSON or YAML, told apart by the file's extension.
struct CdiSpec {
  std::string kind;     // "nvidia.com/gpu"
  std::string version;  // cdiVersion, as written
  std::vector<CdiDevice> devices;
  std::vector<std::string> needs;  // of every device
  // Fields that CDI 0.5.0 lacks, the first few. A reader of CDI refuses the whole spec for a field
  // that it does not know, and podman 4 knows those of 0.5.0.
  std::vector<std::string> late_fields;

  std::vector<std::string> Names() const;
};

struct CdiSpecOrError {
  std::optional<CdiSpec> spec;
  std::string error;  // why there is none
};

enum class CdiFormat { kJson, kYaml };

// The format of a spec file by its name; nullopt for files that CDI does not read.
std::optional<CdiFormat> CdiFormatOf(std::string_view file_name);

// Parses one spec. Only what stands where the format has it is looked at: text in comments, hook
// arguments or values never counts. A collection that a YAML alias stands for is not followed.
// Never throws; memory and depth are bounded by the limits below.
CdiSpecOrError ParseCdiSpec(std::string_view text, CdiFormat format);

// Larger specs are refused. What nvidia-ctk writes for eight cards with MIG is some hundred kB.
inline constexpr std::size_t kLargestCdiSpec = 4 << 20;
// Deeper nesting is refused. The format's own deepest path has seven levels.
inline constexpr std::size_t kDeepestCdiSpec = 64;

}  // namespace smolvm::gpu
