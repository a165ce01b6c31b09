// Keeps hostile guests from filling the log.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace smolvm::server {

// Allows a burst of 20 lines, and 2 a second from then on.
class LogLimit {
 public:
  bool Allow() {
    const auto now = Clock::now();
    const std::chrono::duration<double> passed = now - last_;
    last_ = now;
    tokens_ = std::min(kBurst, tokens_ + passed.count() * kPerSecond);
    if (tokens_ < 1) {
      ++suppressed_;
      return false;
    }
    tokens_ -= 1;
    return true;
  }
  uint64_t TakeSuppressed() { return std::exchange(suppressed_, 0); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kBurst = 20;
  static constexpr double kPerSecond = 2;
  Clock::time_point last_ = Clock::now();
  double tokens_ = kBurst;
  uint64_t suppressed_ = 0;
};

}  // namespace smolvm::server
