#include "host-daemon/session/lane.h"

#include <algorithm>
#include <utility>

#include "host-daemon/session/engine.h"
#include "protocol/log/log.h"

namespace smolvm::session {

using wire::FrameHeader;

Lane::Lane(Engine& engine, uint32_t id)
    : Call(engine.session(), FrameHeader{}), engine_(engine), id_(id) {}

void Lane::Main() {
  FrameHeader header;
  while (engine_.AwaitTurn(this, &header)) {
    holds_turn_ = true;
    do {
      if (header.call_id == wire::kLaneEnds) return Leave();
      if (!Serve(header)) return;
    } while (holds_turn_ && engine_.NextFrame(this, &header));
    holds_turn_ = false;
  }
}

// The turn is passed on first: what the handler does here may block.
void Lane::Leave() {
  if (deferred_ != 0) log::Debug("lane_ends lane={} untold_status={}", id_, deferred_);
  engine_.Forget(this);
  engine_.PassToSpare();
  engine_.handler().LaneEnds(id_);
  engine_.TakeBack(nullptr);
}

bool Lane::Serve(const FrameHeader& header) {
  header_ = header;
  bulk_left_ = header.bulk_length;
  gave_turn_ = false;
  const CallTraits* traits = engine_.handler().Traits(header.call_id);
  if (traits == nullptr) return ServeUnknown(header);
  if (!Acceptable(*traits) || !ReadArgs()) return false;
  reply_.clear();
  uint32_t status = 0;
  const bool served = Run(*traits, &status);
  // Before the reply is on its way: the guest's next frame then finds its lane reading.
  if (gave_turn_) holds_turn_ = engine_.TakeBack(this);
  if (!served) return false;
  if (log::Threshold() >= log::Level::kDebug) {
    log::Debug("call name={} lane={} sequence={} status={} reply={}", traits->name, id_,
               header.sequence, status, !nobody_waits());
  }
  if (nobody_waits()) {
    if (deferred_ == 0) deferred_ = status;
    return true;
  }
  return Reply(status);
}

bool Lane::ServeUnknown(const FrameHeader& header) {
  engine_.NoteUnknown(header.call_id);
  constexpr uint32_t kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED
  uint32_t status = kNotSupported;
  if (nobody_waits()) {
    if (deferred_ == 0) deferred_ = status;
  } else if (deferred_ != 0) {
    status = std::exchange(deferred_, 0);
  }
  return engine_.Refuse(header, status);
}

bool Lane::Acceptable(const CallTraits& traits) {
  const char* fault = nullptr;
  if (header_.args_length > std::min(wire::kMaxArgsBytes, traits.max_args)) {
    fault = "arguments too long";
  } else if (header_.bulk_length > traits.max_bulk) {
    fault = "bulk too long";
  } else if (nobody_waits() && !traits.may_defer) {
    fault = "this call has a reply";
  }
  if (fault != nullptr) engine_.EndMalformed(header_, fault);
  return fault == nullptr;
}

bool Lane::ReadArgs() {
  const size_t size = header_.args_length;
  if (args_buffer_.size() < size) args_buffer_.resize(std::max<size_t>(size, 4096));
  if (!engine_.channel().Read(args_buffer_.data(), size)) {
    engine_.EndOfStream("in the arguments");
    return false;
  }
  args_ = {args_buffer_.data(), size};
  return true;
}

// The rules for deferred errors: CallTraits::has_outputs.
bool Lane::Run(const CallTraits& traits, uint32_t* status) {
  const uint32_t earlier = nobody_waits() ? 0 : std::exchange(deferred_, 0);
  if (earlier == 0 || !traits.has_outputs) *status = engine_.handler().Handle(*this);
  if (*status == Handler::kMalformed) {
    engine_.EndMalformed(header_, "arguments");
    return false;
  }
  if (earlier != 0) {
    *status = earlier;
    reply_.clear();
  }
  return SkipBulk();
}

bool Lane::SkipBulk() {
  if (gave_turn_ || bulk_left_ == 0) return true;
  const uint64_t size = bulk_left_;
  bulk_left_ = 0;
  if (engine_.channel().Skip(size)) return true;
  engine_.EndOfStream("in the bulk");
  return false;
}

bool Lane::Reply(uint32_t status) {
  FrameHeader reply;
  reply.call_id = header_.call_id;
  reply.flags = wire::kFlagReply;
  reply.sequence = header_.sequence;
  reply.lane_or_status = status;
  Sender& sender = engine_.sender();
  std::lock_guard lock(sender.mutex());
  engine_.handler().BeforeReply(*this);
  // A reply that cannot be sent needs no handling: whoever reads the connection finds it ended.
  sender.Add(reply, reply_, {});
  sender.Flush();
  return true;
}

bool Lane::ReadBulk(void* out, size_t size) {
  if (gave_turn_ || size > bulk_left_) {
    log::Error("bulk_misread call={} wanted={} left={}", header_.call_id, size, bulk_left_);
    return false;
  }
  bulk_left_ -= size;
  if (engine_.channel().Read(out, size)) return true;
  engine_.EndOfStream("in the bulk");
  return false;
}

bool Lane::SendBulk(const void* data, size_t size) {
  FrameHeader piece;
  piece.call_id = header_.call_id;
  piece.flags = wire::kFlagReply | wire::kFlagMore;
  piece.sequence = header_.sequence;
  std::span<const char> left(static_cast<const char*>(data), size);
  Sender& sender = engine_.sender();
  while (!left.empty()) {
    const size_t part = std::min<size_t>(left.size(), wire::kMaxReplyPieceBytes);
    // Let go between pieces, so that other lanes' replies need not wait for all of it.
    std::lock_guard lock(sender.mutex());
    if (!sender.Add(piece, {}, left.first(part))) return false;
    left = left.subspan(part);
  }
  return true;
}

void Lane::AboutToBlock() {
  if (nobody_waits() || gave_turn_) return;
  if (bulk_left_ != 0) {
    log::Error("bulk_left_unread call={} left={}", header_.call_id, bulk_left_);
    if (!SkipBulk()) return;
  }
  gave_turn_ = true;
  holds_turn_ = false;
  engine_.PassToSpare();
}

}  // namespace smolvm::session
