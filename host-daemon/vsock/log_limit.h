// Keeps what a guest can cause from filling the host's log.
#pragma once

#include <chrono>
#include <cstdint>

namespace smolvm::vsock {

// Threads: one only.
class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;

  // Whether a line may be written now: kBurst of them in each kPeriod.
  bool Allow(Clock::time_point now = Clock::now()) {
    if (lines_ == 0 || now - start_ >= kPeriod) {
      start_ = now;
      lines_ = 0;
    }
    if (lines_ >= kBurst) {
      ++suppressed_;
      return false;
    }
    ++lines_;
    return true;
  }
  // How many lines were not, since the last call; worth a mention in the next one that is.
  uint64_t TakeSuppressed() {
    const uint64_t n = suppressed_;
    suppressed_ = 0;
    return n;
  }

 private:
  static constexpr int kBurst = 10;
  static constexpr std::chrono::seconds kPeriod{60};
  Clock::time_point start_{};
  int lines_ = 0;
  uint64_t suppressed_ = 0;
};

}  // namespace smolvm::vsock
