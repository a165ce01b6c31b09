#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::gpu {

// What is read of one Container Device Interface spec: the kind it declares and the names of its
// devices (https://github.com/cncf-tags/container-device-interface, SPEC.md, "CDI JSON
// Specification"). A spec is JSON or YAML, told apart by the file's extension.
struct CdiSpec {
  std::string kind;                  // "nvidia.com/gpu"
  std::vector<std::string> devices;  // "0", "1", "all", …
};

struct CdiSpecOrError {
  std::optional<CdiSpec> spec;
  std::string error;  // why there is none
};

enum class CdiFormat { kJson, kYaml };

// The format of a spec file by its name; nullopt for files that CDI does not read.
std::optional<CdiFormat> CdiFormatOf(std::string_view file_name);

// Parses one spec. Only the document's top level is looked at: text in comments, hook paths or
// values never counts. Never throws; memory and depth are bounded by the limits below.
CdiSpecOrError ParseCdiSpec(std::string_view text, CdiFormat format);

// Larger specs are refused. What nvidia-ctk writes for eight cards with MIG is some hundred kB.
inline constexpr std::size_t kLargestCdiSpec = 4 << 20;
// Deeper nesting is refused. The format's own deepest path has seven levels.
inline constexpr std::size_t kDeepestCdiSpec = 64;

}  // namespace smolvm::gpu
