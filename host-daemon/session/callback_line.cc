#include "host-daemon/session/callback_line.h"

#include <chrono>

#include "protocol/log/log.h"
#include "protocol/wire/frame.h"

namespace smolvm::session {
namespace {

// The guest connects before it sends the first call that needs a callback, so this is only ever
// waited out when something is broken.
constexpr std::chrono::seconds kAttachLimit{5};

}  // namespace

void CallbackLine::Attach(std::unique_ptr<transport::Channel> channel) {
  {
    std::lock_guard lock(mutex_);
    if (channel_ != nullptr || ended_) {
      log::Warn("callback_connection_refused reason={}", ended_ ? "session_ended" : "second_one");
      return;
    }
    channel_ = std::move(channel);
  }
  changed_.notify_all();
}

bool CallbackLine::AwaitChannel() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kAttachLimit, [&] { return channel_ != nullptr || ended_; });
  return channel_ != nullptr && !ended_;
}

bool CallbackLine::Exchange(std::span<const char> args) {
  wire::FrameHeader request;
  request.call_id = wire::kHostCallback;
  request.sequence = ++sequence_;
  request.args_length = static_cast<uint32_t>(args.size());
  iovec parts[] = {{&request, sizeof request}, {const_cast<char*>(args.data()), args.size()}};
  if (!channel_->Write(parts, 2)) return false;
  char bytes[wire::kFrameHeaderBytes];
  // No time limit: a host function may take as long as it likes.
  if (!channel_->Read(bytes, sizeof bytes)) return false;
  const wire::FrameHeader reply = wire::LoadFrameHeader(bytes);
  if (reply.call_id == wire::kHostCallback && reply.flags == wire::kFlagReply &&
      reply.sequence == request.sequence && reply.args_length == 0 && reply.bulk_length == 0) {
    return true;
  }
  log::Error("malformed_frame connection=callback call={} sequence={}", reply.call_id,
             reply.sequence);
  return false;
}

bool CallbackLine::Call(std::span<const char> args) {
  std::lock_guard turn(turn_);
  if (!AwaitChannel()) return false;
  if (Exchange(args)) return true;
  End();
  return false;
}

void CallbackLine::End() {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    if (channel_ != nullptr) channel_->Shutdown();
  }
  changed_.notify_all();
}

}  // namespace smolvm::session
