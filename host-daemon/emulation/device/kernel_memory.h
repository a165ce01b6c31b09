// What running kernels take of the host's memory: windows of shared and local memory, parameters,
// stacks and frames of their threads. Counted in one place, against one limit, for the process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace smolvm::emulation {

// Lifetime: one per process. Threads: any.
class KernelMemory {
 public:
  static KernelMemory& Get() {
    static KernelMemory memory;
    return memory;
  }

  // 0: none. Set before anything is taken.
  void SetLimit(uint64_t bytes) { limit_ = bytes; }
  // Whether so much could be had if nothing else ran.
  bool Allows(uint64_t bytes) const { return limit_ == 0 || bytes <= limit_; }
  bool Take(uint64_t bytes) {
    const uint64_t before = used_.fetch_add(bytes, std::memory_order_relaxed);
    if (limit_ == 0 || (before <= limit_ && bytes <= limit_ - before)) return true;
    used_.fetch_sub(bytes, std::memory_order_relaxed);
    return false;
  }
  void Give(uint64_t bytes) { used_.fetch_sub(bytes, std::memory_order_relaxed); }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> used_{0};
  uint64_t limit_ = 0;
};

// Bytes taken, given back when it goes out of scope.
class KernelMemoryShare {
 public:
  KernelMemoryShare() = default;
  KernelMemoryShare(const KernelMemoryShare&) = delete;
  KernelMemoryShare& operator=(const KernelMemoryShare&) = delete;
  ~KernelMemoryShare() { Resize(0); }

  // False, and nothing changes, when there is no room.
  bool Resize(uint64_t bytes) {
    if (bytes > bytes_ && !KernelMemory::Get().Take(bytes - bytes_)) return false;
    if (bytes < bytes_) KernelMemory::Get().Give(bytes_ - bytes);
    bytes_ = bytes;
    return true;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint64_t bytes_ = 0;
};

}  // namespace smolvm::emulation
