#include "guest-shim/libcuda/client/connection.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "protocol/api/session.wire.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

// Enough frames for one large write; beyond, waiting longer gains nothing.
constexpr size_t kGatherBytes = 32 * 1024;
// Bulk up to this size gathers with its frame; larger goes to the socket straight from the
// program's memory.
constexpr uint64_t kGatherBulkBytes = 8 * 1024;
constexpr long kGatherNanoseconds = 50'000;
constexpr int kMaxBulkParts = 64;

// A program may cancel a thread that waits here; frames of ours must not be unwound in the middle
// of one.
class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old_); }
  ~NoCancellation() { pthread_setcancelstate(old_, nullptr); }

 private:
  int old_ = 0;
};

uint64_t BytesIn(Bulk bulk) {
  uint64_t bytes = 0;
  for (const iovec& part : bulk) bytes += part.iov_len;
  return bytes;
}

}  // namespace

Connection::Connection(std::unique_ptr<transport::Channel> channel) : channel_(std::move(channel)) {
  gathered_.reserve(2 * kGatherBytes);
}

uint64_t Connection::Append(uint32_t call_id, uint32_t flags, uint32_t lane, std::string_view args,
                            uint64_t bulk_bytes) {
  const uint64_t sequence = next_sequence_++;
  const wire::FrameHeader header{
      call_id, flags, sequence, lane, static_cast<uint32_t>(args.size()), bulk_bytes};
  gathered_.append(reinterpret_cast<const char*>(&header), sizeof header);
  gathered_.append(args);
  return sequence;
}

bool Connection::Flush(Bulk bulk) {
  if (dead()) return false;
  iovec parts[kMaxBulkParts + 1];
  int count = 0;
  if (!gathered_.empty()) parts[count++] = {gathered_.data(), gathered_.size()};
  for (const iovec& part : bulk) {
    if (part.iov_len == 0) continue;
    if (count == kMaxBulkParts) {
      if (!channel_->Write(parts, count)) return false;
      count = 0;
    }
    parts[count++] = part;
  }
  const bool written = count == 0 || channel_->Write(parts, count);
  gathered_.clear();
  return written;
}

CUresult Connection::Call(uint32_t call_id, uint32_t flags, uint32_t lane, std::string_view args,
                          Bulk bulk, Reply* reply) {
  const NoCancellation no_cancellation;
  Waiter waiter{};
  waiter.reply = reply;
  {
    const std::lock_guard send(send_mutex_);
    waiter.sequence = Append(call_id, flags, lane, args, BytesIn(bulk));
    {
      const std::lock_guard lock(wait_mutex_);
      waiters_.push_back(&waiter);
    }
    if (!Flush(bulk)) Die();
  }
  return WaitFor(waiter);
}

CUresult Connection::Post(uint32_t call_id, uint32_t flags, uint32_t lane, std::string_view args,
                          Bulk bulk) {
  const NoCancellation no_cancellation;
  const uint64_t bulk_bytes = BytesIn(bulk);
  std::unique_lock send(send_mutex_);
  if (dead()) return CUDA_ERROR_UNKNOWN;
  Append(call_id, flags | wire::kFlagNoReply, lane, args, bulk_bytes);
  bool sent = true, wake = false;
  if (bulk_bytes > kGatherBulkBytes) {
    sent = Flush(bulk);
  } else {
    for (const iovec& part : bulk)
      gathered_.append(static_cast<const char*>(part.iov_base), part.iov_len);
    if (gathered_.size() >= kGatherBytes) {
      sent = Flush({});
    } else if (!sender_armed_) {
      sender_armed_ = true;
      if (!sender_started_) StartSender();
      wake = true;
    }
  }
  // Woken with the mutex held, the sender would only wait for it.
  send.unlock();
  if (wake) sender_wake_.notify_one();
  if (sent) return CUDA_SUCCESS;
  Die();
  return CUDA_ERROR_UNKNOWN;
}

void Connection::StartSender() {
  sender_started_ = true;
  // The program's signal handlers have no business on our thread.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, 128 * 1024);
  pthread_t thread;
  const int error = pthread_create(
      &thread, &attributes,
      [](void* self) -> void* {
        static_cast<Connection*>(self)->SenderLoop();
        return nullptr;
      },
      this);
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  // Without the thread, what has gathered waits for the next call that waits or fills the buffer.
  if (error != 0) log::Warn("event=no_sender_thread errno={}", error);
}

void Connection::SenderLoop() {
  std::unique_lock send(send_mutex_);
  while (!dead()) {
    sender_wake_.wait(send, [&] { return sender_armed_; });
    send.unlock();
    const timespec pause{0, kGatherNanoseconds};
    nanosleep(&pause, nullptr);
    send.lock();
    sender_armed_ = false;
    if (!gathered_.empty() && !Flush({})) Die();
  }
}

CUresult Connection::WaitFor(Waiter& waiter) {
  std::unique_lock lock(wait_mutex_);
  while (!waiter.done && !dead()) {
    if (somebody_reads_) {
      waiter.wake.wait(lock);
      continue;
    }
    somebody_reads_ = true;
    lock.unlock();
    const bool alive = ReadFrame();
    lock.lock();
    somebody_reads_ = false;
    if (!alive) {
      lock.unlock();
      Die();
      lock.lock();
    }
  }
  // Somebody else may be reading into this call's reply at this moment, when the session has died.
  while (!waiter.done && somebody_reads_) waiter.wake.wait(lock);
  waiters_.remove(&waiter);
  if (!somebody_reads_ && !waiters_.empty()) waiters_.front()->wake.notify_one();
  return waiter.done ? waiter.status : CUDA_ERROR_UNKNOWN;
}

bool Connection::ReadFrame() {
  wire::FrameHeader header;
  const bool read = more_bulk_follows_ ? channel_->ReadExactly(&header, sizeof header)
                                       : channel_->Read(&header, sizeof header);
  if (!read) return false;
  more_bulk_follows_ = header.flags & wire::kFlagMore;
  if (header.args_length > wire::kMaxArgsBytes || header.bulk_length > wire::kMaxReplyPieceBytes)
    return false;
  switch (header.call_id) {
    case wire::kDeviceOutput:
      return ReadOutput(header, stdout);
    case wire::kDeviceErrors:
      return ReadOutput(header, stderr);
    case wire::kCopyBack:
      return ReadCopyBack(header);
    default:
      return (header.flags & wire::kFlagReply) && ReadReply(header);
  }
}

bool Connection::ReadReply(const wire::FrameHeader& header) {
  Waiter* waiter = nullptr;
  {
    const std::lock_guard lock(wait_mutex_);
    for (Waiter* candidate : waiters_) {
      if (candidate->sequence == header.sequence && !candidate->done) waiter = candidate;
    }
  }
  if (!waiter) return false;
  // Until `done` is set the waiter stays, and nobody else touches its reply.
  Reply& reply = *waiter->reply;
  reply.args.resize(header.args_length);
  if (!channel_->Read(reply.args.data(), header.args_length)) return false;
  if (header.bulk_length > reply.sink_size - reply.received) return false;
  if (!channel_->Read(reply.sink + reply.received, header.bulk_length)) return false;
  reply.received += header.bulk_length;
  if (header.flags & wire::kFlagMore) return true;
  const std::lock_guard lock(wait_mutex_);
  waiter->status = static_cast<CUresult>(header.lane_or_status);
  waiter->done = true;
  waiter->wake.notify_one();
  return true;
}

bool Connection::ReadOutput(const wire::FrameHeader& header, FILE* to) {
  std::vector<char> text(header.bulk_length);
  if (!channel_->Skip(header.args_length) || !channel_->Read(text.data(), text.size()))
    return false;
  // Through the program's own buffer, so that it keeps its place among what the program prints.
  fwrite(text.data(), 1, text.size(), to);
  return true;
}

bool Connection::ReadCopyBack(const wire::FrameHeader& header) {
  std::string args(header.args_length, '\0');
  api::CopyBack message;
  if (!channel_->Read(args.data(), args.size()) || !Decode(args, &message)) return false;
  CopyBack copy{};
  {
    const std::lock_guard lock(copies_mutex_);
    const auto found = copies_.find(message.id);
    if (found == copies_.end()) return false;
    copy = found->second;
  }
  if (message.offset > copy.size || header.bulk_length > copy.size - message.offset) return false;
  if (!channel_->Read(copy.to + message.offset, header.bulk_length)) return false;
  if (message.last) ForgetCopyBack(message.id);
  more_bulk_follows_ = !message.last;
  return true;
}

uint64_t Connection::ExpectCopyBack(void* to, uint64_t size) {
  const std::lock_guard lock(copies_mutex_);
  copies_[next_copy_] = {static_cast<char*>(to), size};
  copies_pending_.store(copies_.size(), std::memory_order_release);
  return next_copy_++;
}

void Connection::ForgetCopyBack(uint64_t id) {
  const std::lock_guard lock(copies_mutex_);
  copies_.erase(id);
  copies_pending_.store(copies_.size(), std::memory_order_release);
}

bool Connection::CopyBackPending(const void* begin, uint64_t size) const {
  if (!AnyCopyBackPending()) return false;
  const std::lock_guard lock(copies_mutex_);
  const auto* from = static_cast<const char*>(begin);
  return std::any_of(copies_.begin(), copies_.end(), [&](const auto& entry) {
    return entry.second.to < from + size && from < entry.second.to + entry.second.size;
  });
}

void Connection::Die() {
  if (!dead_.exchange(true)) {
    log::Error(
        "event=session_lost hint=\"the CUDA session has ended; see the log of smolvm-cuda-daemon "
        "on the host\"");
  }
  channel_->Shutdown();
  const std::lock_guard lock(wait_mutex_);
  for (Waiter* waiter : waiters_) waiter->wake.notify_one();
}

void Connection::Abandon() { close(channel_->fd()); }

}  // namespace smolvm::guest
