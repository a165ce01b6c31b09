// The frame: what every message between a guest process and its session begins with. docs/wire.md
// has the whole story.
//
//   offset size field
//        0    4 call_id      which call (protocol/api/call_ids.lock), or one of the ids below 0x100
//        that are not calls 4    4 flags        FrameFlags 8    8 sequence     requests count up
//        from 1; a reply carries its request's
//       16    4 lane         request: the guest thread that calls (1, 2, …); reply: the CUresult
//       20    4 args_length  bytes of protobuf that follow the header
//       24    8 bulk_length  raw bytes that follow the arguments
//
// Little-endian. Nothing is allocated from args_length or bulk_length before they were held against
// a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace smolvm::wire {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kFrameHeaderBytes = 32;
// The largest message is a kernel launch or a launch with attributes; images and copies travel as
// bulk.
inline constexpr uint32_t kMaxArgsBytes = 256 * 1024;
// A frame of a reply that carries part of a copy back holds at most this much bulk.
inline constexpr uint64_t kMaxReplyPieceBytes = 1024 * 1024;

enum FrameFlags : uint32_t {
  // Request: nobody waits. A failure is kept and returned by the lane's next call that can return
  // it.
  kFlagNoReply = 1u << 0,
  // Request: the per-thread-default-stream variant of the call (_ptds, _ptsz).
  kFlagPerThreadStream = 1u << 1,
  // Reply: more frames with the same sequence follow; this one carries a piece of the bulk and no
  // result yet.
  kFlagMore = 1u << 2,
  kFlagReply = 1u << 3,
};

// Ids below kFirstCallId are the protocol's own.
enum ControlId : uint32_t {
  kHello = 1,         // guest → host, first frame of a connection; args: session.Hello
  kHelloReply = 2,    // host → guest; args: session.HelloReply
  kLaneEnds = 3,      // guest → host, no reply: the guest thread `lane` has exited
  kDeviceOutput = 4,  // host → guest, ahead of a reply: bulk is text that kernels printed
  kCopyBack = 5,      // host → guest, ahead of a reply: args session.CopyBack, bulk the bytes
  kHostCallback = 6,  // host → guest on the callback connection; args session.HostCallback;
                      // answered with a reply
  kGoodbye = 7,  // guest → host, no reply: the process ends; the session may be freed at once
  kDeviceErrors = 8,  // as kDeviceOutput, for the program's stderr: failed assertions
};
inline constexpr uint32_t kFirstCallId = 0x100;
inline constexpr uint32_t kMaxCallId = 0x1FFF;

struct FrameHeader {
  uint32_t call_id = 0;
  uint32_t flags = 0;
  uint64_t sequence = 0;
  uint32_t lane_or_status = 0;
  uint32_t args_length = 0;
  uint64_t bulk_length = 0;
};
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the frame header is copied as it lies in memory");

inline void StoreFrameHeader(const FrameHeader& header, void* out) {
  std::memcpy(out, &header, sizeof header);
}
inline FrameHeader LoadFrameHeader(const void* in) {
  FrameHeader header;
  std::memcpy(&header, in, sizeof header);
  return header;
}

}  // namespace smolvm::wire
