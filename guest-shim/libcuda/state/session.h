// The one session of this process: set up by cuInit, shared by all entry points.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "guest-shim/libcuda/client/connection.h"
#include "guest-shim/libcuda/state/functions.h"
#include "guest-shim/libcuda/state/known.h"
#include "guest-shim/libcuda/state/pinned.h"
#include "protocol/api/session.wire.h"

namespace smolvm::guest {

class Callbacks;

// Lifetime: made by the first successful cuInit and never destroyed.
class Session {
 public:
  // Connects and says hello, within a bounded time. Null with the CUresult that cuInit returns; the
  // log says why.
  static std::unique_ptr<Session> Open(CUresult* result);
  ~Session();

  Connection& connection() { return *connection_; }
  const api::HelloReply& hello() const { return hello_; }
  // Host ordinals of the devices that CUDA_VISIBLE_DEVICES leaves, in the guest's order.
  const std::vector<int>& visible() const { return visible_; }
  const api::Device& device(CUdevice guest_ordinal) const {
    return hello_.devices[visible_[guest_ordinal]];
  }
  bool HostKnows(uint32_t call_id) const;

  KnownHandles& streams_and_events() { return streams_and_events_; }
  DeviceMemory& memory() { return memory_; }
  PinnedMemory& pinned() { return pinned_; }
  Functions& functions() { return functions_; }
  Callbacks& callbacks() { return *callbacks_; }

  // Changes whenever what was proved about contexts may no longer hold.
  uint64_t epoch() const { return epoch_.load(std::memory_order_acquire); }
  void NewEpoch() { epoch_.fetch_add(1, std::memory_order_acq_rel); }

  // With more than one context alive, a handle may belong to another than the current one, which
  // only the host knows.
  void ContextSeen(uint64_t id);
  void ContextGone(uint64_t id);
  bool single_context() const { return contexts_alive_.load(std::memory_order_acquire) <= 1; }

 private:
  Session() = default;

  std::unique_ptr<Connection> connection_;
  api::HelloReply hello_;
  std::vector<int> visible_;
  KnownHandles streams_and_events_;
  DeviceMemory memory_;
  PinnedMemory pinned_;
  Functions functions_;
  std::unique_ptr<Callbacks> callbacks_;
  std::atomic<uint64_t> epoch_{1};
  std::mutex contexts_mutex_;
  std::set<uint64_t> contexts_;
  std::atomic<size_t> contexts_alive_{0};
};

// The session, or null before cuInit has succeeded and in a forked child.
Session* CurrentSession();

// cuInit. May be called again after a failure.
CUresult InitialiseSession();

// One guest thread, as the host knows it.
struct Lane {
  uint32_t id = 0;
  uint64_t proved_epoch =
      0;  // the epoch in which a call of this thread has shown that a context is current
  bool in_callback = false;
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::string args;  // reused
};
Lane& CurrentLane();

// What the daemon's address and the time to wait for it are.
std::string EndpointText();
inline constexpr int kConnectTimeoutMs = 4000;

}  // namespace smolvm::guest
