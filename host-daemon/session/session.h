// One guest process's session: a connection, its lanes, and the order between them.
//
// Order: frames are run in the order in which they arrive, whichever guest thread sent them, unless
// their handler says that it is about to block (Call::AboutToBlock). Each guest thread has a thread
// of its own here (a lane), so that what the driver keeps per thread (current context, capture
// mode, per-thread stream) is kept for it. One thread at a time holds the connection: it reads a
// frame and runs it when it is its own lane's, else passes the connection to that lane.
//
// Deferred errors: see CallTraits::has_outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "host-daemon/session/call.h"
#include "protocol/transport/channel.h"

namespace smolvm::session {

struct SessionLimits {
  // Guest threads that have called CUDA and not yet exited. More: the call returns
  // CUDA_ERROR_OUT_OF_MEMORY.
  uint32_t max_lanes = 4096;
  size_t lane_stack_bytes = 512 * 1024;
};

// Lifetime: made after the hello was answered; Run returns when the connection has ended. The
// handler must outlive it.
class Session {
 public:
  Session(std::unique_ptr<transport::Channel> channel, Handler& handler,
          const SessionLimits& limits);
  ~Session();

  // Serves the connection until it ends; the reason goes to the log. All lanes have ended when it
  // returns, or are blocked in the driver (the worker then ends by _exit).
  void Run();

  // Only from Handler::BeforeReply: a frame without a request (kDeviceOutput, kCopyBack). False:
  // the guest is gone.
  bool SendAhead(uint32_t control_id, std::span<const char> args, std::span<const char> bulk);

  // The second connection, on which the guest runs host functions. Called once, from any thread.
  void AttachCallbackChannel(std::unique_ptr<transport::Channel> channel);
  // Runs a host function in the guest and returns when it has returned. Waits for the callback
  // connection up to a few seconds. False when the guest cannot be reached. Called from the
  // driver's callback threads; serialised.
  bool CallGuest(std::span<const char> args);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smolvm::session
