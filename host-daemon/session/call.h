// What the session hands to the code that serves a call, and what it asks of that code.
//
// The session (this folder) knows frames, lanes and order; it does not know CUDA.
// host-daemon/dispatch implements `Handler` over a table of driver entry points; tests implement it
// over anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "protocol/wire/frame.h"

namespace smolvm::session {

class Session;

// What the session must know of a call before it runs it.
struct CallTraits {
  const char* name;
  uint32_t max_args;  // bytes; a larger frame ends the session
  uint64_t max_bulk;  // bytes; a larger frame ends the session
  bool may_defer;     // kFlagNoReply is allowed
  // Returns something that a failed earlier call makes meaningless (an address, bytes, a handle).
  // Such a call is not run when the lane has a deferred error: it returns that error. Others run
  // and then return it.
  bool has_outputs;
};

// One request while it is served, on its lane's thread.
// Threads: used by that thread alone.
class Call {
 public:
  virtual ~Call() = default;

  const wire::FrameHeader& header() const { return header_; }
  std::span<const char> args() const { return args_; }
  bool per_thread_stream() const { return header_.flags & wire::kFlagPerThreadStream; }
  bool nobody_waits() const { return header_.flags & wire::kFlagNoReply; }

  // The request's bulk, read in pieces straight from the connection. False: the guest is gone;
  // return at once.
  uint64_t bulk_left() const { return bulk_left_; }
  virtual bool ReadBulk(void* out, size_t size) = 0;

  // The reply's arguments (protobuf bytes). They are sent with a failure of this call too (a
  // compiler's log), but not with an earlier call's deferred one.
  std::string& reply() { return reply_; }
  // Sends a piece of the reply's bulk (frames with kFlagMore), ahead of the reply; a small one
  // together with it. False: the guest is gone.
  virtual bool SendBulk(const void* data, size_t size) = 0;

  // To be called before anything that may block (after a look that does not block said that it
  // would): lets other lanes use the connection meanwhile. What is left of the request's bulk must
  // have been read. No-op when it was called before, or when nobody waits for this call (its order
  // is the connection's).
  virtual void AboutToBlock() = 0;

  Session& session() const { return session_; }

 protected:
  Call(Session& session, const wire::FrameHeader& header) : header_(header), session_(session) {}
  wire::FrameHeader header_;
  std::span<const char> args_;
  uint64_t bulk_left_ = 0;
  std::string reply_;

 private:
  Session& session_;
};

class Handler {
 public:
  virtual ~Handler() = default;
  // Null for an id that is not served: the reply is CUDA_ERROR_NOT_SUPPORTED, logged once an id.
  virtual const CallTraits* Traits(uint32_t call_id) const = 0;
  // Runs the call; the result is a CUresult. Malformed arguments: return kMalformed, which ends the
  // session.
  virtual uint32_t Handle(Call& call) = 0;
  static constexpr uint32_t kMalformed = UINT32_MAX;
  // Just before a reply is sent, with the connection's write side held: the handler may send what
  // must travel ahead of it (Session::SendAhead): finished copies back, text that kernels printed.
  virtual void BeforeReply(Call& call) = 0;
  // The lane's thread is about to end (its guest thread has exited). Runs on that thread, and does
  // not hold up other lanes. Not called for the lanes that are left when the session ends.
  virtual void LaneEnds(uint32_t lane) = 0;
};

}  // namespace smolvm::session
