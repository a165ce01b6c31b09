#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "container/gpu.h"

namespace smolvm::gpu {

// A made-up host: a temporary folder that stands for its root, and a podman of its own.
//
// *Lifetime*: the folder goes with the object.
class FixtureHost {
 public:
  FixtureHost();
  ~FixtureHost();
  FixtureHost(const FixtureHost&) = delete;
  FixtureHost& operator=(const FixtureHost&) = delete;

  // Every path is as the made-up host spells it.
  void Write(std::string_view path, std::string_view text);
  void Directory(std::string_view path);
  void Link(std::string_view path, std::string_view target);
  void Node(std::string_view path) {
    Write(path, "");
  }  // an ordinary file: existence is what counts
  std::string Real(std::string_view path) const;

  // A card below /proc/driver/nvidia/gpus; a negative minor leaves its information file out.
  void NvidiaCard(std::string_view address, int minor);
  // The driver's device nodes: nvidiactl, nvidia-uvm and one node for each minor.
  void NvidiaNodes(const std::vector<int>& minors);

  // A render node in sysfs and /dev/dri, with its by-path link.
  enum class ByPath { kAbsent, kPresent };
  void RenderNode(std::string_view name, std::string_view address, std::string_view vendor_id,
                  ByPath by_path = ByPath::kAbsent);

  // A spec with these devices in /etc/cdi.
  void CdiJson(std::string_view file, std::string_view kind,
               const std::vector<std::string>& devices = {"0", "1", "all"});

  // Makes a shell script the host's podman.
  void PodmanScript(std::string_view body);

  // Warnings are collected in `warnings`.
  Host host();
  std::vector<std::string> warnings;

 private:
  std::filesystem::path folder_;
  Podman podman_;
};

inline constexpr std::string_view kNvidiaId = "0x10de";
inline constexpr std::string_view kAmdId = "0x1002";
inline constexpr std::string_view kIntelId = "0x8086";
inline constexpr std::string_view kAspeedId = "0x1a03";  // the BMC of many servers

// gpu_run_args, with the selector parsed.
std::vector<std::string> ArgsOf(FixtureHost& host, std::string_view selector);

// The message (and hint) of the GpuConfigError that `selector` meets; a failed expectation when
// none.
std::string ErrorOf(FixtureHost& host, std::string_view selector);

using Words = std::vector<std::string>;

}  // namespace smolvm::gpu
