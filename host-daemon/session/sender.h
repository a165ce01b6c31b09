// The write side of a session's connection: whole frames, from any lane.
#pragma once

#include <mutex>
#include <span>
#include <string>

#include "protocol/transport/channel.h"
#include "protocol/wire/frame.h"

namespace smolvm::session {

// Small frames are gathered until Flush, so that a reply and what travels ahead of it leave in one
// system call.
//
// Threads: every function needs `mutex()` held. A guest that does not read stalls its own session
// here, and nobody else's.
class Sender {
 public:
  explicit Sender(transport::Channel& channel) : channel_(channel) {}
  std::mutex& mutex() { return mutex_; }

  // Queues a frame; its lengths are filled in. Large bulk is sent at once, behind what is queued.
  // What cannot be sent whole ends the connection, both ways: the guest would take the next frame
  // for the rest of this one.
  bool Add(wire::FrameHeader header, std::span<const char> args, std::span<const char> bulk);
  bool Flush();

 private:
  bool Sent(bool whole);

  transport::Channel& channel_;
  std::mutex mutex_;
  std::string queue_;
};

}  // namespace smolvm::session
