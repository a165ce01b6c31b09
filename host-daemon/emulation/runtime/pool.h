// The threads, one a core, that help the launching threads to run their grids.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace smolvm::emulation {

// Lifetime: one per process, started at the first grid of more than one block, never destroyed.
// Threads: any.
class Pool {
 public:
  static Pool& Get();

  // Runs `work` on the calling thread and on up to `helpers` others at once; returns when all of
  // them have returned. Helpers that are still busy when the caller is done never start.
  void Run(const std::function<void()>& work, size_t helpers);
  size_t size() const { return size_; }

 private:
  struct Job {
    const std::function<void()>* work;
    size_t tickets;
    size_t active = 0;
  };

  Pool();
  void Loop();

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Job*> jobs_;
};

}  // namespace smolvm::emulation
