// Memory pools and stream-ordered allocation.
//
// The device has one kind of memory and the host's own allocator behind it, so a pool keeps nothing
// back: memory that was freed goes to the device at once. What a pool holds is its attributes and
// its statistics.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace smolvm::emulation {

// Lifetime: shared by the handle table and the regions allocated from it: a destroyed pool's memory
// stays usable. Threads: every function may be called from any thread.
class Pool {
 public:
  explicit Pool(size_t max_bytes) : max_bytes(max_bytes) {}

  CUresult GetAttribute(CUmemPool_attribute attribute, void* value) const;
  CUresult SetAttribute(CUmemPool_attribute attribute, const void* value);

  // False when that would exceed the pool's maximum.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }

  const size_t max_bytes;  // 0 = the device's

 private:
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> used_high_{0};
  std::atomic<uint64_t> release_threshold_{0};
  std::atomic<int> follow_event_{1};
  std::atomic<int> opportunistic_{1};
  std::atomic<int> internal_{1};
};

}  // namespace smolvm::emulation
