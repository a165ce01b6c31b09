// Streams: queues of work, each run in order on a thread of its own, with the waits between them
// that CUDA defines.
//
// Work is numbered per stream. To wait for another stream's work is to wait for a number, and every
// wait names work that was submitted before, so waits cannot form a circle.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace smolvm::emulation {

class Stream;

// A piece of work: done once `stream` has completed `number` pieces.
struct Ticket {
  std::shared_ptr<Stream> stream;
  uint64_t number = 0;

  bool Done() const;
  void Wait() const;
};

// The streams of one context, and the error that ended it.
//
// Lifetime: shared by the context and its streams.
// Threads: every function may be called from any thread.
class StreamGroup : public std::enable_shared_from_this<StreamGroup> {
 public:
  StreamGroup(uint64_t context_id, void* owner) : context_id_(context_id), owner_(owner) {}

  uint64_t context_id() const { return context_id_; }
  // The context, only to be compared or given out as a handle.
  void* owner() const { return owner_; }

  // Null before MakeLegacy and after Close.
  std::shared_ptr<Stream> legacy() const;
  void MakeLegacy();
  void Add(std::shared_ptr<Stream> stream);
  void Remove(const Stream* stream);
  // Ends a stream that the program has destroyed, once its queued work is done; until then it
  // counts.
  void Retire(const std::shared_ptr<Stream>& stream);
  std::vector<std::shared_ptr<Stream>> All() const;

  // All work that is unfinished now, of the legacy stream and the blocking streams; of all streams.
  std::vector<Ticket> PendingBlocking() const;
  std::vector<Ticket> PendingAll() const;
  void WaitAll() const;

  // All work submitted from now on, in any stream, begins after `ticket` (cuCtxWaitEvent).
  void HoldBack(Ticket ticket);
  // What HoldBack still holds work back for.
  void AddBarriers(std::vector<Ticket>* after);
  // A stream for work that belongs to the whole context; made at its first use.
  std::shared_ptr<Stream> Recorder();

  // A device fault: every later call in the context returns it. The first one stays.
  void SetFault(int result);
  int fault() const { return fault_.load(std::memory_order_acquire); }

  // Makes waits on memory values give up; set before the context ends.
  void Cancel() { cancelled_.store(true, std::memory_order_release); }
  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // Forgets all streams; their threads end when their queues are empty.
  void Close();

 private:
  const uint64_t context_id_;
  void* const owner_;
  std::atomic<int> fault_{0};
  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Stream> legacy_;
  std::shared_ptr<Stream> recorder_;  // also among streams_
  std::vector<Ticket> barriers_;
  std::atomic<bool> has_barriers_{false};
  std::vector<std::shared_ptr<Stream>> streams_;  // without the legacy stream
};

// Lifetime: shared; its thread, started at the first work that cannot be done at once, holds a
// reference until Close. Threads: every function may be called from any thread.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind {
    kLegacy,       // waits for all blocking streams, and they for it
    kBlocking,     // the default of cuStreamCreate, and each per-thread default stream
    kNonBlocking,  // CU_STREAM_NON_BLOCKING
  };
  using Work = std::function<void()>;
  enum class Where {
    kAnywhere,  // short and cannot block: run in the calling thread when nothing is before it
    kThread,    // long, or the program's own code
  };

  Stream(std::shared_ptr<StreamGroup> group, Kind kind, unsigned flags, int priority);
  ~Stream();

  // Appends work that begins after all work before it and after `after`.
  Ticket Submit(Where where, Work work, std::vector<Ticket> after = {});
  // Runs `work` in order and returns after it; in the calling thread when nothing is before it.
  void Run(Work work);
  // Later work begins after `ticket` only.
  void WaitFor(Ticket ticket);

  // The last work that was submitted.
  Ticket Last();
  bool Idle() const {
    return completed_.load(std::memory_order_acquire) == submitted_.load(std::memory_order_acquire);
  }
  bool Done(uint64_t number) const { return completed_.load(std::memory_order_acquire) >= number; }
  void Wait(uint64_t number);
  // What a synchronisation with this stream waits for: for the legacy stream, the blocking streams
  // too.
  std::vector<Ticket> Pending();

  // No work comes any more. The thread ends after what is queued.
  void Close();

  StreamGroup& group() const { return *group_; }
  Kind kind() const { return kind_; }
  unsigned flags() const { return flags_; }
  int priority() const { return priority_.load(std::memory_order_relaxed); }
  void set_priority(int priority) { priority_.store(priority, std::memory_order_relaxed); }
  uint64_t id() const { return id_; }

  std::atomic<int> sync_policy{
      1};  // CU_SYNC_POLICY_AUTO; kept for who asks: all waits yield, then sleep

 private:
  struct Item {
    Work work;
    std::vector<Ticket> after;
  };

  // Unfinished work of other streams that CUDA's implicit synchronisation puts before work
  // submitted now.
  void AddImplicit(std::vector<Ticket>* after) const;
  // True when nothing is before: then the caller is the one that executes, until EndInline.
  bool BeginInline(const std::vector<Ticket>& after, Ticket* ticket);
  void EndInline();
  Ticket Enqueue(Work work, std::vector<Ticket> after);
  // False when the system has no thread to give.
  bool StartThread();
  void ThreadMain();
  // When there is no thread, callers do the queued work: slower, and still in order.
  void DrainWithoutThread(std::unique_lock<std::mutex>* lock);
  // Runs the first piece of work in the queue; `lock` is released meanwhile.
  void ExecuteFront(std::unique_lock<std::mutex>* lock);

  const std::shared_ptr<StreamGroup> group_;
  const Kind kind_;
  const unsigned flags_;
  const uint64_t id_;
  std::atomic<int> priority_;

  std::atomic<uint64_t> submitted_{0};  // written under mutex_
  std::atomic<uint64_t> completed_{0};  // written under mutex_
  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable work_done_;
  std::deque<Item> queue_;
  bool executing_ = false;  // a piece of work runs, here or in a caller's thread
  bool thread_started_ = false;
  bool thread_sleeps_ = false;
  bool closed_ = false;
  int waiters_ = 0;
};

// Whether this thread runs a host function or callback of a stream, where CUDA calls are not
// permitted.
bool InHostCallback();
// Runs `function` as such.
void RunHostCallback(const std::function<void()>& function);

}  // namespace smolvm::emulation
