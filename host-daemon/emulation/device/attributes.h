// What the emulated device says of itself. Every value is what this device does, not what some GPU
// of its compute capability would: what is not implemented reads 0.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <optional>
#include <string>

#include "host-daemon/emulation/device/settings.h"

namespace smolvm::emulation {

inline constexpr char kDeviceName[] = "smolvm CPU emulation device";

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreadsPerBlock = 1024;
inline constexpr int kMaxBlockDim[3] = {1024, 1024, 64};
inline constexpr int kMaxGridDim[3] = {2147483647, 65535, 65535};
// Of a multiprocessor, which here is a processor core. They bound a cooperative grid and answer
// occupancy questions.
inline constexpr int kMaxThreadsPerMultiprocessor = 2048;
inline constexpr int kMaxBlocksPerMultiprocessor = 32;
inline constexpr int kRegistersPerMultiprocessor = 65536;
inline constexpr int kRegisterUnit = 256;  // registers are given to a warp in such portions
// Shared memory, in bytes: what a block has without asking, what it can ask for
// (cuFuncSetAttribute), what a multiprocessor has, and what each block uses of that besides its
// own.
inline constexpr int kSharedPerBlock = 48 << 10;
inline constexpr int kSharedPerBlockOptIn = 227 << 10;
inline constexpr int kSharedPerMultiprocessor = 228 << 10;
inline constexpr int kSharedReservedPerBlock = 1 << 10;
inline constexpr int kConstantBytes = 64 << 10;
inline constexpr size_t kMaxParamBytes = 32764;
inline constexpr size_t kPitchAlignment = 512;
inline constexpr int kLeastStreamPriority = 0;
inline constexpr int kGreatestStreamPriority = -5;

int MultiprocessorCount();

// Nullopt when `attribute` is none that we know.
std::optional<int> DeviceAttribute(CUdevice_attribute attribute, const Settings& settings);

// Stable: derived from the host's machine-id, so that two hosts' devices differ and one host's
// never changes.
CUuuid DeviceUuid();
// "GPU-xxxxxxxx-xxxx-…", as nvidia-smi and CUDA_VISIBLE_DEVICES write it.
std::string DeviceUuidText();

inline constexpr int kPciDomain = 0;
inline constexpr int kPciBus = 0;
inline constexpr int kPciDevice = 0;
inline constexpr char kPciBusId[] = "0000:00:00.0";

}  // namespace smolvm::emulation
