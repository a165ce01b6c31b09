#include "host-daemon/session/engine.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <system_error>

#include "protocol/log/log.h"

namespace smolvm::session {

using wire::FrameHeader;

namespace {

constexpr uint32_t kOutOfMemory = 2;  // CUDA_ERROR_OUT_OF_MEMORY
// Bulk of a call that is not served here is read past, up to this; a peer that sends more does not
// keep to the list of calls in the hello.
constexpr uint64_t kMaxRefusedBulk = 64ull << 20;
// A lane that runs a call when the guest vanishes may find the end by itself; after this it is
// left behind.
constexpr std::chrono::milliseconds kVanishedGrace{500};
constexpr std::chrono::milliseconds kEndGrace{250};

}  // namespace

Engine::Engine(Session& session, std::unique_ptr<transport::Channel> channel, Handler& handler,
               const SessionLimits& limits)
    : session_(session),
      handler_(handler),
      limits_(limits),
      channel_(std::move(channel)),
      sender_(*channel_),
      nudge_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      noted_ids_(wire::kMaxCallId + 2) {
  if (nudge_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Engine::~Engine() { close(nudge_); }

void Engine::Run() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (holder_ == nullptr && channel_->buffered() != 0) {
      SpareReads(lock);
      continue;
    }
    SpareWaits(lock);
    if (guest_left_ && holder_ != nullptr && !ended_) {
      // Whoever holds the turn is in a call and may stay there; the guest is gone.
      changed_.wait_for(lock, kVanishedGrace, [&] { return ended_ || holder_ == nullptr; });
      if (ended_ || holder_ == nullptr) continue;
      lock.unlock();
      End("the guest has gone", true);
      lock.lock();
    }
  }
  changed_.wait_for(lock, kEndGrace, [&] { return threads_ == blocked_; });
}

// With the turn: waits for a frame, and reads it if the turn is still here then. Without: waits for
// the turn, or for the guest to vanish (POLLRDHUP alone is not woken by data).
void Engine::SpareWaits(std::unique_lock<std::mutex>& lock) {
  const bool has_turn = holder_ == nullptr;
  spare_polls_frames_ = has_turn;
  const short events = has_turn ? POLLIN : POLLRDHUP;
  pollfd entries[] = {{guest_left_ && !has_turn ? -1 : channel_->fd(), events, 0},
                      {nudge_, POLLIN, 0}};
  lock.unlock();
  poll(entries, 2, -1);
  uint64_t count;
  if (entries[1].revents != 0 && read(nudge_, &count, sizeof count) < 0) count = 0;
  lock.lock();
  spare_polls_frames_ = false;
  if (ended_ || entries[0].revents == 0) return;
  if (!has_turn) {
    guest_left_ = true;
  } else if (holder_ == nullptr) {
    SpareReads(lock);
  }
}

// From here on the turn cannot be taken back.
void Engine::SpareReads(std::unique_lock<std::mutex>& lock) {
  spare_reads_ = true;
  lock.unlock();
  FrameHeader header;
  NextFrame(nullptr, &header);
  lock.lock();
  spare_reads_ = false;
}

void Engine::Nudge() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is being woken already.
  if (write(nudge_, &one, sizeof one) < 0) return;
}

bool Engine::ReadHeader(FrameHeader* header) {
  char bytes[wire::kFrameHeaderBytes];
  if (!channel_->Read(bytes, sizeof bytes)) return false;
  *header = wire::LoadFrameHeader(bytes);
  return true;
}

bool Engine::NextFrame(Lane* self, FrameHeader* header) {
  constexpr uint32_t kRequestFlags = wire::kFlagNoReply | wire::kFlagPerThreadStream;
  for (;;) {
    if (!ReadHeader(header)) {
      EndOfStream("between frames");
      return false;
    }
    if ((header->flags & ~kRequestFlags) != 0) {
      EndMalformed(*header, "flags");
      return false;
    }
    if (header->call_id < wire::kFirstCallId && !Control(*header)) return false;
    if (self != nullptr && header->lane_or_status == self->id()) return true;
    if (GiveTo(*header)) return false;
  }
}

// A frame that is not a call. False when the session has ended with it.
bool Engine::Control(const FrameHeader& header) {
  const bool empty = header.args_length == 0 && header.bulk_length == 0;
  if (header.call_id == wire::kGoodbye && empty) {
    End("goodbye", true);
    return false;
  }
  if (header.call_id == wire::kLaneEnds && empty) return true;
  EndMalformed(header, "not a call");
  return false;
}

// True when the turn is no longer this thread's: passed on, or the session has ended.
bool Engine::GiveTo(const FrameHeader& header) {
  if (header.call_id == wire::kLaneEnds) {
    std::lock_guard lock(mutex_);
    if (!lanes_.contains(header.lane_or_status)) return false;  // it has made no call
  }
  const std::shared_ptr<Lane> lane = LaneFor(header.lane_or_status);
  if (lane == nullptr) {
    if ((header.flags & wire::kFlagNoReply) == 0) return !Refuse(header, kOutOfMemory);
    // There is no lane to keep the error for, and it may not be forgotten.
    End("too many lanes for a call that nobody waits for", false);
    return true;
  }
  {
    std::lock_guard lock(mutex_);
    holder_ = lane.get();
    lane->pending = header;
    lane->has_turn = true;
  }
  lane->wake.notify_one();
  return true;
}

std::shared_ptr<Lane> Engine::LaneFor(uint32_t id) {
  {
    std::lock_guard lock(mutex_);
    const auto found = lanes_.find(id);
    if (found != lanes_.end()) return found->second;
    if (threads_ >= limits_.max_lanes) {
      log::Warn("lane_refused lane={} lanes={}", id, threads_);
      return nullptr;
    }
  }
  auto lane = std::make_shared<Lane>(*this, id);
  if (!StartThread(lane)) return nullptr;
  return lane;
}

bool Engine::StartThread(const std::shared_ptr<Lane>& lane) {
  struct Start {
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Lane> lane;
  };
  {
    std::lock_guard lock(mutex_);
    ++threads_;
    lanes_.emplace(lane->id(), lane);
  }
  auto start = std::make_unique<Start>(Start{shared_from_this(), lane});
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, limits_.lane_stack_bytes);
  pthread_t thread;
  const auto main = [](void* argument) -> void* {
    const std::unique_ptr<Start> start(static_cast<Start*>(argument));
    start->lane->Main();
    start->engine->ThreadEnds();
    return nullptr;
  };
  const int code = pthread_create(&thread, &attributes, main, start.get());
  pthread_attr_destroy(&attributes);
  if (code == 0) {
    start.release();
    return true;
  }
  log::Warn("lane_refused lane={} error={}", lane->id(), log::Quote(strerror(code)));
  std::lock_guard lock(mutex_);
  --threads_;
  lanes_.erase(lane->id());
  return false;
}

void Engine::ThreadEnds() {
  std::lock_guard lock(mutex_);
  --threads_;
  changed_.notify_all();
}

void Engine::Forget(Lane* self) {
  std::lock_guard lock(mutex_);
  lanes_.erase(self->id());
}

void Engine::PassToSpare() {
  bool nudge;
  {
    std::lock_guard lock(mutex_);
    ++blocked_;
    holder_ = nullptr;
    if (guest_left_) changed_.notify_all();
    // It is woken by the socket if it waits for a frame already, but not by what is in our buffer.
    nudge = !spare_polls_frames_ || channel_->buffered() != 0;
  }
  if (nudge) Nudge();
}

bool Engine::TakeBack(Lane* self) {
  std::lock_guard lock(mutex_);
  --blocked_;
  if (ended_) changed_.notify_all();
  if (self == nullptr || holder_ != nullptr || spare_reads_ || ended_) return false;
  holder_ = self;
  return true;
}

bool Engine::AwaitTurn(Lane* self, FrameHeader* header) {
  std::unique_lock lock(mutex_);
  self->wake.wait(lock, [&] { return self->has_turn || ended_; });
  if (ended_) return false;
  self->has_turn = false;
  *header = self->pending;
  return true;
}

void Engine::AwaitLanesGone() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return threads_ == 0; });
}

bool Engine::Refuse(const FrameHeader& header, uint32_t status) {
  if (header.args_length > wire::kMaxArgsBytes || header.bulk_length > kMaxRefusedBulk) {
    EndMalformed(header, "too long for a call that is not served");
    return false;
  }
  if (!channel_->Skip(uint64_t{header.args_length} + header.bulk_length)) {
    EndOfStream("in a call that is not served");
    return false;
  }
  if ((header.flags & wire::kFlagNoReply) != 0) return true;
  FrameHeader reply;
  reply.call_id = header.call_id;
  reply.flags = wire::kFlagReply;
  reply.sequence = header.sequence;
  reply.lane_or_status = status;
  std::lock_guard lock(sender_.mutex());
  sender_.Add(reply, {}, {});
  sender_.Flush();
  return true;
}

void Engine::NoteUnknown(uint32_t call_id) {
  const size_t index = std::min(call_id, wire::kMaxCallId + 1);
  if (noted_ids_[index]) return;
  noted_ids_[index] = true;
  log::Warn("call_not_supported call_id={:#x}", call_id);
}

void Engine::EndMalformed(const FrameHeader& header, const char* what) {
  End(fmt::format("malformed frame ({}): call_id={:#x} flags={:#x} lane={} args={} bulk={}", what,
                  header.call_id, header.flags, header.lane_or_status, header.args_length,
                  header.bulk_length),
      false);
}

void Engine::EndOfStream(const char* where) {
  const int code = errno;
  if (code == 0 || code == ECONNRESET) {
    End(std::string("the guest has gone, ") + where, true);
  } else {
    End(std::string("read failed ") + where + ": " + strerror(code), false);
  }
}

void Engine::End(const std::string& reason, bool clean) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    for (const auto& [id, lane] : lanes_) lane->wake.notify_one();
    changed_.notify_all();
  }
  log::At(clean ? log::Level::kInfo : log::Level::kError, "session_ended reason={}",
          log::Quote(reason));
  channel_->Shutdown();
  callback_line_.End();
  Nudge();
}

}  // namespace smolvm::session
