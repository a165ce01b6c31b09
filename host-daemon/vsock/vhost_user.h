// The back end's half of the vhost-user protocol, as far as a vsock device needs it.
//
// FrontEnd is a state machine: it is given messages and says what to answer; the socket is read and
// written elsewhere (vhost_user_socket.h). Source: QEMU, docs/interop/vhost-user.rst.
//
// A front end is another process of the host (QEMU) and less hostile than its guest; but it may be
// taken over by it. So nothing it sends is believed either, and whatever breaks the protocol ends
// its connection.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host-daemon/vsock/guest_memory.h"
#include "host-daemon/vsock/virtqueue.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::vsock {

// The queues (virtio 1.2, section 5.10.2). The third, for events, stays with QEMU.
inline constexpr uint32_t kRxQueue = 0;
inline constexpr uint32_t kTxQueue = 1;
inline constexpr uint32_t kQueues = 2;

// Adds one to an eventfd; nothing if `fd` is -1.
void SignalEventFd(int fd);

struct VhostUserMessage {
  uint32_t request = 0;
  bool need_reply = false;
  std::vector<uint8_t> payload;
  std::vector<UniqueFd> fds;
};

// One virtqueue and what the front end attached to it.
struct Ring {
  Virtqueue queue;
  UniqueFd kick;  // the guest added buffers
  UniqueFd call;  // the guest is to be interrupted
  UniqueFd err;   // the front end is to know that the ring is broken
  bool started = false;
  bool enabled = false;
};

// Threads: one only.
class FrontEnd {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    // Before a kick descriptor is closed or replaced (-1: there is none before, or after). An epoll
    // set must let go of the old one while it is open, because the front end keeps it alive.
    virtual void OnKickFd(uint32_t ring, int old_fd, int new_fd) = 0;
    // The guest's driver starts anew: every stream is void.
    virtual void OnGuestReset() = 0;
    // Guest memory was mapped or dropped.
    virtual void OnMemory() = 0;
  };

  FrontEnd(uint64_t guest_cid, Observer* observer);
  ~FrontEnd();

  struct Outcome {
    std::optional<std::vector<uint8_t>> reply;  // the payload
    std::string error;  // why the front end has to be dropped; empty if it has not
  };
  Outcome Handle(VhostUserMessage message);

  Ring& ring(uint32_t index) { return rings_[index]; }
  // Whether the ring may be used: started, enabled, and found in guest memory.
  bool Active(uint32_t index) const;
  const GuestMemory* memory() const { return memory_.get(); }

 private:
  using Payload = std::vector<uint8_t>;
  // Each returns false, with error_ set, if the message is not acceptable.
  bool Dispatch(VhostUserMessage* m, std::optional<Payload>* reply);
  bool SetFeatures(const Payload& payload);
  bool SetProtocolFeatures(const Payload& payload);
  bool SetMemTable(VhostUserMessage* m);
  bool SetVringNum(const Payload& payload);
  bool SetVringAddr(const Payload& payload);
  bool SetVringBase(const Payload& payload);
  bool GetVringBase(const Payload& payload, std::optional<Payload>* reply);
  bool SetVringFd(VhostUserMessage* m);
  bool SetVringEnable(const Payload& payload);
  bool GetConfig(const Payload& payload, std::optional<Payload>* reply);
  bool Fail(std::string reason);

  bool RingIndex(uint32_t index, Ring** ring);
  void ReplaceKick(uint32_t index, UniqueFd fd);
  bool ResolveRing(uint32_t index);
  bool ProtocolFeaturesNegotiated() const;

  const uint64_t guest_cid_;
  Observer* const observer_;
  uint64_t features_ = 0;
  uint64_t protocol_features_ = 0;
  std::unique_ptr<GuestMemory> memory_;
  std::array<Ring, kQueues> rings_;
  // What GET_VRING_BASE said last. A front end that resumes a paused guest hands it back; one whose
  // guest was reset hands out another.
  std::array<std::optional<uint16_t>, kQueues> stopped_at_;
  std::string error_;
};

}  // namespace smolvm::vsock
