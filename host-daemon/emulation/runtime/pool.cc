#include "host-daemon/emulation/runtime/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <functional>
#include <thread>

#include "host-daemon/emulation/device/signals.h"

namespace smolvm::emulation {
namespace {

size_t UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

WorkPool& WorkPool::Get() {
  static WorkPool* pool = new WorkPool;
  return *pool;
}

WorkPool::WorkPool() : size_(UsableCores()) {
  const SignalsBlocked blocked;  // inherited by the threads
  for (size_t i = 0; i < size_; ++i) std::thread([this] { Loop(); }).detach();
}

void WorkPool::NoteMostUrgent() {
  most_urgent_.store(jobs_.empty() ? INT_MAX : jobs_.front()->priority, std::memory_order_relaxed);
}

void WorkPool::Enqueue(Job* job) {
  const auto behind = std::ranges::upper_bound(jobs_, job->priority, std::less<>(), &Job::priority);
  jobs_.insert(behind, job);
  NoteMostUrgent();
}

void WorkPool::Dequeue(Job* job) {
  std::erase(jobs_, job);
  NoteMostUrgent();
}

void WorkPool::Loop() {
  pthread_setname_np(pthread_self(), "cuda-emulation");
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !jobs_.empty(); });
    Job* job = jobs_.front();
    if (--job->tickets == 0) Dequeue(job);
    ++job->active;
    lock.unlock();
    const Outcome outcome = (*job->work)(true);
    lock.lock();
    // Who has left for another grid's sake comes back when there is none.
    if (outcome == Outcome::kLeft && !job->closed && job->tickets++ == 0) Enqueue(job);
    if (--job->active == 0) done_.notify_all();
  }
}

void WorkPool::Run(const Work& work, size_t helpers, int priority) {
  Job job{&work, std::min(helpers, size_), priority};
  if (job.tickets == 0) {
    work(false);
    return;
  }
  const size_t tickets = job.tickets;
  {
    std::lock_guard lock(mutex_);
    Enqueue(&job);
  }
  for (size_t i = 0; i < tickets; ++i) wake_.notify_one();
  work(false);
  std::unique_lock lock(mutex_);
  job.closed = true;
  Dequeue(&job);
  done_.wait(lock, [&] { return job.active == 0; });
}

}  // namespace smolvm::emulation
