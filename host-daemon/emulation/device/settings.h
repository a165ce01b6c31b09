// What the environment says the emulated device is like.
//
// SMOLVM_CUDA_EMULATION_MEMORY: device memory in MiB, or with a unit ("512M", "2G"); default 1024.
//
// SMOLVM_CUDA_EMULATION_CC: compute capability: "9.0" (the default), "7.5" … "13.0".
//
// SMOLVM_CUDA_EMULATION_TIER: "auto" (the default), "scalar" or "vector"; see tier.h.
//
// SMOLVM_CUDA_KERNEL_TIMEOUT_MS: a kernel that runs longer ends with CUDA_ERROR_LAUNCH_TIMEOUT;
// default 0, no limit.
//
// SMOLVM_CUDA_COMPILE_LIMIT_MS: a kernel whose compilation would take about more, by its size, is
// refused; default 0, no limit.
//
// SMOLVM_CUDA_KERNEL_MEMORY: what running kernels may take of the host's memory (windows of local
// and shared memory, stacks): as the above; default 0, no limit.
//
// CUDA_VISIBLE_DEVICES: as CUDA documents it, for one device: "0" or a UUID prefix shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "host-daemon/emulation/device/tier.h"

namespace smolvm::emulation {

struct Settings {
  size_t memory_bytes = size_t{1024} << 20;
  int compute_capability = 90;  // 10 × major + minor
  Tier tier = Tier::kAuto;
  uint64_t kernel_timeout_ms = 0;
  uint64_t compile_limit_ms = 0;
  uint64_t kernel_memory_bytes = 0;
  bool device_visible = true;
};

// Reads the environment. Nullopt, and `error` says why, when a variable makes no sense.
std::optional<Settings> ReadSettings(std::string* error);

// "1024" (MiB), "512M", "2G", "262144K". Nullopt for anything else, and for less than 1 MiB or more
// than 16 TiB.
std::optional<size_t> ParseMemory(std::string_view text);
// "9.0" → 90. Nullopt for anything below 5.0 or above 13.0.
std::optional<int> ParseComputeCapability(std::string_view text);
// "auto", "scalar", "vector".
std::optional<Tier> ParseTier(std::string_view text);
// Whether CUDA_VISIBLE_DEVICES lets device 0 with this UUID ("GPU-…") be seen: the list ends at its
// first bad entry.
bool IsVisible(std::string_view visible_devices, std::string_view uuid);

}  // namespace smolvm::emulation
