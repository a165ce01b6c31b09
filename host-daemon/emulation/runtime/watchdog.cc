#include "host-daemon/emulation/runtime/watchdog.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

#include "host-daemon/emulation/runtime/launch.h"
#include "host-daemon/emulation/runtime/worker.h"

namespace smolvm::emulation {

Watchdog& Watchdog::Get() {
  static auto* watchdog = new Watchdog;
  return *watchdog;
}

Watchdog::Watchdog() {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread([this] { Loop(); }).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Watchdog::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    Clock::time_point next = Clock::time_point::max();
    for (auto& [launch, deadline] : deadlines_) {
      if (deadline <= Clock::now()) {
        launch->Fail(CUDA_ERROR_LAUNCH_TIMEOUT,
                     std::string("\"") + NameOf(FaultKind::kTimeout) + "\"");
        Worker::Kick(*launch);
        deadline = Clock::now() + std::chrono::milliseconds(1);  // until it has gone
      }
      next = std::min(next, deadline);
    }
    if (next == Clock::time_point::max()) {
      changed_.wait(lock);
    } else {
      changed_.wait_until(lock, next);
    }
  }
}

Watchdog::Watch::Watch(Launch& launch, uint64_t timeout_ms) {
  if (timeout_ms == 0) return;
  launch_ = &launch;
  Watchdog& watchdog = Get();
  std::lock_guard lock(watchdog.mutex_);
  watchdog.deadlines_[launch_] = Clock::now() + std::chrono::milliseconds(timeout_ms);
  watchdog.changed_.notify_all();
}

Watchdog::Watch::~Watch() {
  if (launch_ == nullptr) return;
  Watchdog& watchdog = Get();
  std::lock_guard lock(watchdog.mutex_);
  watchdog.deadlines_.erase(launch_);
}

}  // namespace smolvm::emulation
