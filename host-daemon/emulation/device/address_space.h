// How much address space a process reserves for the emulated device. Most of it is never touched:
// it costs no memory, but a limit on it (`ulimit -v`) counts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>

#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation {

// Of the one range in which all generated code lies (runtime/code_region.h).
inline constexpr size_t kCodeBytes = size_t{512} << 20;
// Names, for a worker whose sandbox keeps executable memory to that range, where it has reserved
// it: an address in hexadecimal.
inline constexpr const char* kCodeAtVariable = "SMOLVM_CUDA_EMULATION_CODE_AT";

// The arena, and then: the region for compiled code (twice, to align it), libraries (LLVM's is the
// largest), what the compiler and the kernels' stacks take; and for each processor a thread with
// its stack (8 MiB) and the allocator's arena for it (64 MiB).
inline uint64_t AddressSpaceNeeded(size_t device_bytes) {
  constexpr uint64_t kBase = uint64_t{2} << 30;
  constexpr uint64_t kPerProcessor = uint64_t{80} << 20;
  return device_bytes + kScratchBytes + kBase + 2 * kCodeBytes +
         kPerProcessor * std::thread::hardware_concurrency();
}

}  // namespace smolvm::emulation
