// A connection that carries frames, read and written with poll(2).
//
// Threads: one. Lifetime: owns its descriptor.
#pragma once

#include <optional>
#include <string>

#include "machine/wire/frame.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

class Channel {
 public:
  // `max_payload` bounds what the peer may send.
  Channel(UniqueFd fd, size_t max_payload) : fd_(std::move(fd)), parser_(max_payload) {}

  int fd() const { return fd_.get(); }
  int ReleaseFd() { return fd_.release(); }

  // Writes a whole frame, waiting as long as the peer needs. False when the peer is gone.
  bool Send(FrameType type, std::string_view payload);

  // For the poll loop: queues without blocking; Flush writes what the peer takes.
  void Queue(FrameType type, std::string_view payload);
  bool Flush();
  // Writes all that is queued, waiting as long as the peer needs.
  bool SendQueued();
  size_t queued() const { return out_.size(); }

  // Reads what has arrived. False at the end of the stream or on an error.
  bool Receive();
  // The same, but takes no byte beyond the frame under way: what follows is not ours to read.
  bool ReceiveOneFrame();
  std::optional<Frame> Next() { return parser_.Next(); }
  bool broken() const { return parser_.broken(); }

  // Waits for one frame, up to `timeout_ms` (negative: for ever). Nothing at the end, on a broken
  // stream, and when the time is over.
  std::optional<Frame> WaitFrame(int timeout_ms);

 private:
  UniqueFd fd_;
  FrameParser parser_;
  std::string out_;
};

}  // namespace smolvm::machine
