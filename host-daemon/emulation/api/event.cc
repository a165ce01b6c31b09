#include "host-daemon/emulation/api/event.h"

#include <time.h>

namespace smolvm::emulation {
namespace {

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void Event::Record(const std::shared_ptr<Stream>& stream, std::vector<Ticket> after) {
  auto time = std::make_shared<std::atomic<int64_t>>(0);
  // The lock keeps two records of one event in the order of their numbers.
  std::lock_guard lock(mutex_);
  last_ = stream->Submit(
      Stream::Where::kAnywhere, [time] { time->store(NowNs(), std::memory_order_release); },
      std::move(after));
  time_ = std::move(time);
}

Ticket Event::last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

bool Event::Recorded() const {
  std::lock_guard lock(mutex_);
  return time_ != nullptr;
}

int64_t Event::time_ns() const {
  std::lock_guard lock(mutex_);
  return time_ == nullptr ? 0 : time_->load(std::memory_order_acquire);
}

}  // namespace smolvm::emulation
