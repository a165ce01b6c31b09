#include "host-daemon/emulation/runtime/pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <thread>

namespace smolvm::emulation {
namespace {

size_t UsableCores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

Pool& Pool::Get() {
  static Pool* pool = new Pool;
  return *pool;
}

Pool::Pool() : size_(UsableCores()) {
  // The program's signals are its own business: ours take none but those that faults raise.
  sigset_t all, old;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGURG}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  for (size_t i = 0; i < size_; ++i) std::thread([this] { Loop(); }).detach();
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void Pool::Loop() {
  pthread_setname_np(pthread_self(), "cuda-emulation");
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return !jobs_.empty(); });
    Job* job = jobs_.front();
    if (--job->tickets == 0) jobs_.pop_front();
    ++job->active;
    lock.unlock();
    (*job->work)();
    lock.lock();
    if (--job->active == 0) done_.notify_all();
  }
}

void Pool::Run(const std::function<void()>& work, size_t helpers) {
  Job job{&work, std::min(helpers, size_)};
  if (job.tickets == 0) return work();
  const size_t tickets = job.tickets;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back(&job);
  }
  for (size_t i = 0; i < tickets; ++i) wake_.notify_one();
  work();
  std::unique_lock lock(mutex_);
  if (const auto it = std::find(jobs_.begin(), jobs_.end(), &job); it != jobs_.end())
    jobs_.erase(it);
  done_.wait(lock, [&] { return job.active == 0; });
}

}  // namespace smolvm::emulation
