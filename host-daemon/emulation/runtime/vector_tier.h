// A kernel's second code, which runs several threads of a row of the block at once. It is made once
// the kernel has run for about as long as making it takes, so that short programs do not wait for
// it, and blocks that begin later run it.
//
// A fault of memory protection in it is found again by the first code, which runs one thread at a
// time and so tells which thread it was.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "host-daemon/emulation/runtime/context.h"

namespace smolvm::emulation {

// Threads: any, at once.
class VectorTier {
 public:
  // `lanes`: threads at once. `budget_ns`: how long the first code runs before `make` compiles the
  // second, once at most; null when that fails.
  VectorTier(unsigned lanes, int64_t budget_ns, std::function<KernelFunction()> make)
      : lanes_(lanes), make_(std::move(make)), budget_ns_(budget_ns) {}

  // Of narrower blocks most lanes would be idle.
  bool Suits(const uint32_t (&block)[3]) const { return block[0] >= lanes_; }
  unsigned lanes() const { return lanes_; }
  // Null while there is none.
  KernelFunction function() const { return function_.load(std::memory_order_acquire); }
  // Counts the time that a worker has run the first code. True for one caller: who must Make().
  bool Spend(int64_t nanoseconds) {
    const int64_t before = budget_ns_.fetch_sub(nanoseconds, std::memory_order_relaxed);
    return before > 0 && before <= nanoseconds;
  }
  void Make() { function_.store(make_(), std::memory_order_release); }

 private:
  const unsigned lanes_;
  const std::function<KernelFunction()> make_;
  std::atomic<KernelFunction> function_{nullptr};
  std::atomic<int64_t> budget_ns_;
};

}  // namespace smolvm::emulation
