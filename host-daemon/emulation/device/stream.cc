#include "host-daemon/emulation/device/stream.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "host-daemon/emulation/device/signals.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

// How often a waiter yields its core before it sleeps: a sleep and a wake-up cost about 12 µs.
constexpr int kYields = 32;

// After which a stream's thread ends: a program may keep streams that it used once.
constexpr std::chrono::seconds kIdleTime{2};

std::atomic<uint64_t> next_stream_id{1};

thread_local bool in_host_callback = false;

void AddIfPending(const std::shared_ptr<Stream>& stream, std::vector<Ticket>* tickets) {
  if (stream && !stream->Idle()) tickets->push_back(stream->Last());
}

}  // namespace

bool Ticket::Done() const { return stream == nullptr || stream->Done(number); }

void Ticket::Wait() const {
  if (stream != nullptr) stream->Wait(number);
}

std::shared_ptr<Stream> StreamGroup::legacy() const {
  std::lock_guard lock(mutex_);
  return legacy_;
}

void StreamGroup::MakeLegacy() {
  auto stream = std::make_shared<Stream>(shared_from_this(), Stream::Kind::kLegacy, 0, 0);
  std::lock_guard lock(mutex_);
  legacy_ = std::move(stream);
}

void StreamGroup::Add(std::shared_ptr<Stream> stream) {
  std::lock_guard lock(mutex_);
  streams_.push_back(std::move(stream));
}

void StreamGroup::Remove(const Stream* stream) {
  std::lock_guard lock(mutex_);
  std::erase_if(streams_, [stream](const auto& each) { return each.get() == stream; });
}

void StreamGroup::Retire(const std::shared_ptr<Stream>& stream) {
  if (!stream->Idle()) {
    // A synchronisation of the context must still wait for it: its last piece of work takes it off
    // the list.
    stream->Submit(Stream::Where::kThread, [group = weak_from_this(), stream = stream.get()] {
      if (const auto alive = group.lock()) alive->Remove(stream);
    });
  } else {
    Remove(stream.get());
  }
  stream->Close();
}

std::vector<std::shared_ptr<Stream>> StreamGroup::All() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Stream>> all = streams_;
  if (legacy_) all.push_back(legacy_);
  return all;
}

std::vector<Ticket> StreamGroup::PendingBlocking() const {
  std::vector<Ticket> pending;
  std::lock_guard lock(mutex_);
  for (const auto& stream : streams_)
    if (stream->kind() == Stream::Kind::kBlocking) AddIfPending(stream, &pending);
  return pending;
}

std::vector<Ticket> StreamGroup::PendingAll() const {
  std::vector<Ticket> pending;
  std::lock_guard lock(mutex_);
  for (const auto& stream : streams_) AddIfPending(stream, &pending);
  AddIfPending(legacy_, &pending);
  return pending;
}

void StreamGroup::WaitAll() const {
  for (const Ticket& ticket : PendingAll()) ticket.Wait();
}

void StreamGroup::HoldBack(Ticket ticket) {
  std::lock_guard lock(mutex_);
  barriers_.push_back(std::move(ticket));
  has_barriers_.store(true, std::memory_order_release);
}

void StreamGroup::AddBarriers(std::vector<Ticket>* after) {
  if (!has_barriers_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  std::erase_if(barriers_, [](const Ticket& ticket) { return ticket.Done(); });
  has_barriers_.store(!barriers_.empty(), std::memory_order_release);
  after->insert(after->end(), barriers_.begin(), barriers_.end());
}

std::shared_ptr<Stream> StreamGroup::Recorder() {
  std::lock_guard lock(mutex_);
  if (recorder_ == nullptr) {
    recorder_ = std::make_shared<Stream>(shared_from_this(), Stream::Kind::kNonBlocking, 0, 0);
    streams_.push_back(recorder_);
  }
  return recorder_;
}

void StreamGroup::SetFault(int result) {
  int none = 0;
  fault_.compare_exchange_strong(none, result, std::memory_order_acq_rel);
}

void StreamGroup::Close() {
  std::vector<std::shared_ptr<Stream>> all;
  {
    std::lock_guard lock(mutex_);
    all = std::move(streams_);
    streams_.clear();
    if (legacy_) all.push_back(std::move(legacy_));
    legacy_ = nullptr;
    recorder_ = nullptr;
    barriers_.clear();
  }
  for (const auto& stream : all) stream->Close();
}

Stream::Stream(std::shared_ptr<StreamGroup> group, Kind kind, unsigned flags, int priority)
    : group_(std::move(group)),
      kind_(kind),
      flags_(flags),
      id_(next_stream_id.fetch_add(1, std::memory_order_relaxed)),
      priority_(priority) {}

Stream::~Stream() = default;

void Stream::AddImplicit(std::vector<Ticket>* after) const {
  group_->AddBarriers(after);
  if (kind_ == Kind::kNonBlocking) return;
  if (kind_ == Kind::kBlocking) {
    AddIfPending(group_->legacy(), after);
    return;
  }
  for (Ticket& ticket : group_->PendingBlocking()) after->push_back(std::move(ticket));
}

bool Stream::BeginInline(const std::vector<Ticket>& after, Ticket* ticket) {
  for (const Ticket& each : after)
    if (!each.Done()) return false;
  std::lock_guard lock(mutex_);
  if (submitted_.load(std::memory_order_relaxed) != completed_.load(std::memory_order_relaxed))
    return false;
  const uint64_t number = submitted_.load(std::memory_order_relaxed) + 1;
  submitted_.store(number, std::memory_order_release);
  executing_ = true;
  *ticket = {shared_from_this(), number};
  return true;
}

void Stream::EndInline() {
  std::unique_lock lock(mutex_);
  executing_ = false;
  completed_.fetch_add(1, std::memory_order_release);
  if (waiters_ > 0) work_done_.notify_all();
  if (thread_sleeps_ && !queue_.empty()) work_ready_.notify_one();
  DrainWithoutThread(&lock);
}

Ticket Stream::Submit(Where where, Work work, std::vector<Ticket> after) {
  AddImplicit(&after);
  Ticket ticket;
  if (where == Where::kAnywhere && BeginInline(after, &ticket)) {
    work();
    work = nullptr;  // let go of what it holds before it counts as done
    EndInline();
    return ticket;
  }
  return Enqueue(std::move(work), std::move(after));
}

void Stream::Run(Work work) {
  std::vector<Ticket> after;
  AddImplicit(&after);
  Ticket ticket;
  if (BeginInline(after, &ticket)) {
    work();
    work = nullptr;
    EndInline();
    return;
  }
  Enqueue(std::move(work), std::move(after)).Wait();
}

void Stream::WaitFor(Ticket ticket) {
  if (ticket.Done() || ticket.stream.get() == this) return;
  std::vector<Ticket> after;
  after.push_back(std::move(ticket));
  Submit(
      Where::kAnywhere, [] {}, std::move(after));
}

Ticket Stream::Enqueue(Work work, std::vector<Ticket> after) {
  std::unique_lock lock(mutex_);
  const uint64_t number = submitted_.load(std::memory_order_relaxed) + 1;
  queue_.push_back({std::move(work), std::move(after)});
  submitted_.store(number, std::memory_order_release);
  if (!thread_started_) thread_started_ = StartThread();
  if (thread_sleeps_) work_ready_.notify_one();
  DrainWithoutThread(&lock);
  return {shared_from_this(), number};
}

Ticket Stream::Last() { return {shared_from_this(), submitted_.load(std::memory_order_acquire)}; }

std::vector<Ticket> Stream::Pending() {
  std::vector<Ticket> pending;
  if (kind_ == Kind::kLegacy) pending = group_->PendingBlocking();
  if (!Idle()) pending.push_back(Last());
  return pending;
}

void Stream::Wait(uint64_t number) {
  for (int i = 0; i < kYields; ++i) {
    if (Done(number)) return;
    sched_yield();
  }
  std::unique_lock lock(mutex_);
  ++waiters_;
  work_done_.wait(lock, [&] { return Done(number); });
  --waiters_;
}

void Stream::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  work_ready_.notify_one();
}

bool Stream::StartThread() {
  // A host has some ten thousand threads for all its guests.
  constexpr int kMostThreads = 256;
  static std::atomic<int> threads{0};
  if (threads.fetch_add(1) >= kMostThreads) {
    threads.fetch_sub(1);
    static std::atomic<bool> noted{false};
    if (!noted.exchange(true))
      log::Warn("event=many_streams threads={} note=\"others run in their callers\"", kMostThreads);
    return false;
  }
  const SignalsBlocked blocked;  // inherited by the thread
  try {
    std::thread([self = shared_from_this()] {
      self->ThreadMain();
      threads.fetch_sub(1);
    }).detach();
    return true;
  } catch (const std::system_error& error) {
    threads.fetch_sub(1);
    log::Error("event=stream_thread_failed reason={}", log::Quote(error.what()));
    return false;
  }
}

void Stream::DrainWithoutThread(std::unique_lock<std::mutex>* lock) {
  while (!thread_started_ && !queue_.empty() && !executing_) ExecuteFront(lock);
}

void Stream::ExecuteFront(std::unique_lock<std::mutex>* lock) {
  Item item = std::move(queue_.front());
  queue_.pop_front();
  executing_ = true;
  lock->unlock();
  for (const Ticket& ticket : item.after) ticket.Wait();
  item.work();
  item = {};  // let go of what it holds before it counts as done
  lock->lock();
  executing_ = false;
  completed_.fetch_add(1, std::memory_order_release);
  if (waiters_ > 0) work_done_.notify_all();
}

void Stream::ThreadMain() {
  pthread_setname_np(pthread_self(), "cuda-stream");
  std::unique_lock lock(mutex_);
  while (true) {
    for (int i = 0; i < kYields && queue_.empty() && !closed_; ++i) {
      lock.unlock();
      sched_yield();
      lock.lock();
    }
    thread_sleeps_ = true;
    const bool has_cause = work_ready_.wait_for(lock, kIdleTime, [this] {
      return (!queue_.empty() && !executing_) || (closed_ && queue_.empty());
    });
    thread_sleeps_ = false;
    if (queue_.empty()) {
      // The next work starts another.
      thread_started_ = false;
      return;
    }
    if (has_cause) ExecuteFront(&lock);
  }
}

bool InHostCallback() { return in_host_callback; }

void RunHostCallback(const std::function<void()>& function) {
  in_host_callback = true;
  function();
  in_host_callback = false;
}

}  // namespace smolvm::emulation
