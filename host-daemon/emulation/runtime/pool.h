// The threads, one a core, that help the launching threads to run their grids.
//
// Priority: a launching thread always runs its own grid, so that each goes on. The helpers go to
// the grid of the highest priority that wants some, and leave a lower one's, at the end of a block,
// when a higher one comes; of equals the first is served first.
#pragma once

#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace smolvm::emulation {

// Lifetime: one per process, started at the first grid of more than one block, never destroyed.
// Threads: any.
class WorkPool {
 public:
  static WorkPool& Get();

  enum class Outcome { kDone, kLeft };
  // `is_helper`: not the calling thread; may leave with work left to do, when Outranked says so.
  using Work = std::function<Outcome(bool is_helper)>;

  // Runs `work` on the calling thread and on up to `helpers` others at once; returns when all of
  // them have returned. Helpers that are still busy when the caller is done never start.
  void Run(const Work& work, size_t helpers, int priority);
  // Whether a grid of a higher priority than this wants helpers.
  bool Outranked(int priority) const {
    return most_urgent_.load(std::memory_order_relaxed) < priority;
  }
  size_t size() const { return size_; }

 private:
  struct Job {
    const Work* work;
    size_t tickets;  // helpers that may still come
    int priority;
    size_t active = 0;
    bool closed = false;  // the caller has no work left
  };

  WorkPool();
  void Loop();
  // With mutex_ held.
  void Enqueue(Job* job);
  void Dequeue(Job* job);
  void NoteMostUrgent();

  const size_t size_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Job*> jobs_;  // by priority, then by arrival
  std::atomic<int> most_urgent_{INT_MAX};
};

}  // namespace smolvm::emulation
