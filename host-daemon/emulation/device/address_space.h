// How much address space a process reserves for the emulated device. Most of it is never touched:
// it costs no memory, but a limit on it (`ulimit -v`) counts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <thread>

#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation {

// The arena, and then: the region for compiled code (512 MiB), libraries (LLVM's is the largest),
// what the compiler and the kernels' stacks take; and for each processor a thread with its stack
// (8 MiB) and the allocator's arena for it (64 MiB).
inline uint64_t AddressSpaceNeeded(size_t device_bytes) {
  constexpr uint64_t kBase = uint64_t{2} << 30;
  constexpr uint64_t kPerProcessor = uint64_t{80} << 20;
  return device_bytes + kScratchBytes + kBase + kPerProcessor * std::thread::hardware_concurrency();
}

}  // namespace smolvm::emulation
