// Messages between the daemon and its child processes, over a SEQPACKET socket pair.
//
// One message: ControlHeader, then `text` (bytes whose meaning the type gives), with at most one
// descriptor. Both ends are ours; a worker that a guest has taken over may send anything, so the
// daemon checks what it reads and never waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace smolvm::worker {

// A child finds its end of the pair here.
inline constexpr int kControlFd = 3;
inline constexpr size_t kTokenBytes = 16;
inline constexpr uint32_t kMaxHelloBytes = 64 * 1024;

enum class ControlType : uint32_t {
  kReady = 1,       // child: may be given work; text: key=value fields for the log
  kFailed = 2,      // child: cannot work and exits; text: why, one line
  kStart = 3,       // daemon: a session; text: the hello's arguments; descriptor: its socket
  kCallback = 4,    // daemon: the session's second connection; descriptor: its socket
  kConnection = 5,  // vsock device: a guest has connected; descriptor: its socket
  kTaken = 6,       // child: kStart has arrived, and nothing has been said to its guest yet
};

struct ControlHeader {
  ControlType type{};
  uint32_t reserved = 0;
  uint64_t session = 0;          // kStart
  char token[kTokenBytes] = {};  // kStart
};

struct ControlMessage {
  ControlHeader header;
  std::string text;
  int fd = -1;  // the receiver's to close
};

// Never raises SIGPIPE. False when the peer is gone, or (`wait` false) does not read.
bool SendControl(int socket, const ControlHeader& header, const std::string& text, int fd,
                 bool wait);

enum class ControlResult { kGot, kNothing, kClosed };
// kNothing only when `wait` is false. A malformed message counts as kClosed.
ControlResult ReceiveControl(int socket, bool wait, ControlMessage* message);

}  // namespace smolvm::worker
