// malloc and free in kernels: a bounded piece of device memory.
//
// The book-keeping lies outside the arena, so that a kernel that writes past a block spoils its own
// data only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation {

// Lifetime: one per arena, never destroyed. Threads: any.
class DeviceHeap {
 public:
  // CU_LIMIT_MALLOC_HEAP_SIZE's default.
  static constexpr size_t kDefaultBytes = 8 << 20;

  explicit DeviceHeap(Arena& arena) : arena_(arena) {}

  // Takes effect if nothing has been allocated yet, as CU_LIMIT_MALLOC_HEAP_SIZE does; false
  // otherwise.
  bool SetLimit(size_t bytes);
  size_t limit();

  // 16-byte aligned; 0 when the heap is full.
  uintptr_t Allocate(uint64_t bytes);
  // False when `address` is not the start of a block of this heap.
  bool Free(uintptr_t address);

  static DeviceHeap& Of(Arena& arena);

 private:
  Arena& arena_;
  std::mutex mutex_;
  size_t limit_ = kDefaultBytes;
  uintptr_t base_ = 0;
  std::map<uintptr_t, size_t> live_;
  std::map<uintptr_t, size_t> holes_;
};

}  // namespace smolvm::emulation
