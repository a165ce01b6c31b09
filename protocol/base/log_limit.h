// Keeps what a guest can cause from filling the host's log.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace smolvm {

// Allows a burst of lines, and so many a second from then on.
// *Threads*: one only.
class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;

  LogLimit(double burst, double per_second)
      : burst_(burst), per_second_(per_second), tokens_(burst) {}

  // Whether a line may be written now.
  bool Allow(Clock::time_point now = Clock::now()) {
    const std::chrono::duration<double> passed = now - last_;
    last_ = now;
    tokens_ = std::min(burst_, tokens_ + passed.count() * per_second_);
    if (tokens_ < 1) {
      ++suppressed_;
      return false;
    }
    tokens_ -= 1;
    return true;
  }
  // How many lines were not, since the last call; worth a mention in the next one that is.
  uint64_t TakeSuppressed() { return std::exchange(suppressed_, 0); }

 private:
  const double burst_, per_second_;
  Clock::time_point last_ = Clock::now();
  double tokens_;
  uint64_t suppressed_ = 0;
};

}  // namespace smolvm
