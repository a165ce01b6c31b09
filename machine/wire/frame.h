// Frames between the launcher and the agent in the guest: a little-endian u32 length, one byte of
// type, then the payload. A field inside a payload is a u32, or a string with its u32 length first.
//
// Every connection is opened by the guest and begins with kHello. What follows depends on what the
// hello asks for:
//   control  kReady or kFailed from the guest; kOpen and kPowerOff from the host.
//   exec     kExec from the host, then the command's streams both ways, kExit last.
//   share    no frames: raw FUSE messages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::machine {

enum class FrameType : uint8_t {
  kHello = 1,
  kReady = 2,
  kFailed = 3,   // string: why the guest cannot go on
  kOpen = 4,     // string: the token with which to open an exec connection
  kExec = 5,     // ExecRequest
  kStdin = 6,    // raw bytes; an empty one is the end of the input
  kSignal = 7,   // u32
  kWinsize = 8,  // u32 rows, u32 columns
  kStdout = 9,   // raw bytes
  kStderr = 10,  // raw bytes
  kExit = 11,    // ExitReport
  kPowerOff = 12,
};

// A guest's frames are small (64 KiB of output); the host's carry a command line and environment.
inline constexpr size_t kMaxFrameFromGuest = 128 << 10;
inline constexpr size_t kMaxFrameFromHost = 4 << 20;
inline constexpr size_t kStreamChunk = 64 << 10;
inline constexpr size_t kFrameHeader = 5;

struct Frame {
  FrameType type;
  std::string payload;
};

std::string EncodeFrame(FrameType type, std::string_view payload);

void PutU32(std::string* out, uint32_t value);
void PutString(std::string* out, std::string_view value);

// Reads the fields of a payload; one failure makes every later read fail.
class FieldReader {
 public:
  explicit FieldReader(std::string_view payload) : rest_(payload) {}
  uint32_t U32();
  std::string String();
  // True when nothing failed and nothing is left over.
  bool Complete() const { return ok_ && rest_.empty(); }
  bool ok() const { return ok_; }
  size_t left() const { return rest_.size(); }

 private:
  std::string_view Take(size_t bytes);

  std::string_view rest_;
  bool ok_ = true;
};

// Cuts a byte stream into frames.
class FrameParser {
 public:
  explicit FrameParser(size_t max_payload) : max_payload_(max_payload) {}
  void Add(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole frame. After a frame that is too long, broken() is true and there are no more.
  std::optional<Frame> Next();
  bool broken() const { return broken_; }
  // How many more bytes the frame under way takes, as far as is known (its header first): for a
  // reader that must not take what follows the frame.
  size_t Missing() const;

 private:
  const size_t max_payload_;
  std::string buffer_;
  size_t used_ = 0;
  bool broken_ = false;
};

}  // namespace smolvm::machine
