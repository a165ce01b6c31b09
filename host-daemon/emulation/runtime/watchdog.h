// Ends kernels that run longer than they may (CUDA_ERROR_LAUNCH_TIMEOUT).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>

namespace smolvm::emulation {

struct Launch;

// Lifetime: one per process, its thread started at the first launch with a limit, never destroyed.
// Threads: any.
class Watchdog {
 public:
  // Watches a launch while in scope. `timeout_ms` 0 = does nothing.
  class Watch {
   public:
    Watch(Launch& launch, uint64_t timeout_ms);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    Launch* launch_ = nullptr;
  };

 private:
  using Clock = std::chrono::steady_clock;

  static Watchdog& Get();
  Watchdog();
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Launch*, Clock::time_point> deadlines_;
};

}  // namespace smolvm::emulation
