#include "host-daemon/vsock/vhost_user.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/log/log.h"

namespace smolvm::vsock {
namespace {

// Requests (vhost-user: "Front-end message types").
enum Request : uint32_t {
  kGetFeatures = 1,
  kSetFeatures = 2,
  kSetOwner = 3,
  kResetOwner = 4,
  kSetMemTable = 5,
  kSetVringNum = 8,
  kSetVringAddr = 9,
  kSetVringBase = 10,
  kGetVringBase = 11,
  kSetVringKick = 12,
  kSetVringCall = 13,
  kSetVringErr = 14,
  kGetProtocolFeatures = 15,
  kSetProtocolFeatures = 16,
  kSetVringEnable = 18,
  kGetConfig = 24,
  kSetConfig = 25,
};

constexpr uint64_t Bit(int n) { return uint64_t{1} << n; }

// Feature bits (virtio 1.2, section 6; vhost-user: "Feature negotiation").
constexpr uint64_t kIndirectDesc = Bit(28);
constexpr uint64_t kEventIdx = Bit(29);
constexpr uint64_t kProtocolFeaturesBit = Bit(30);
constexpr uint64_t kVersion1 = Bit(32);
constexpr uint64_t kOfferedFeatures = kVersion1 | kProtocolFeaturesBit | kEventIdx | kIndirectDesc;

// Protocol features.
constexpr uint64_t kReplyAck = Bit(3);
constexpr uint64_t kConfig = Bit(9);
constexpr uint64_t kOfferedProtocolFeatures = kReplyAck | kConfig;

// SET_VRING_KICK and its like: the ring's index, and the flag for "no descriptor comes with this".
constexpr uint64_t kVringIndexMask = 0xff;
constexpr uint64_t kVringNoFd = Bit(8);

struct VringState {
  uint32_t index;
  uint32_t num;
};
struct VringAddr {
  uint32_t index;
  uint32_t flags;
  uint64_t desc;
  uint64_t used;
  uint64_t avail;
  uint64_t log;
};
struct MemTableHeader {
  uint32_t count;
  uint32_t padding;
};
struct WireRegion {
  uint64_t guest_addr;
  uint64_t size;
  uint64_t user_addr;
  uint64_t file_offset;
};
struct ConfigHeader {
  uint32_t offset;
  uint32_t size;
  uint32_t flags;
};

// The payload as a T, if it has exactly that size.
template <typename T>
bool Read(const std::vector<uint8_t>& payload, T* value) {
  if (payload.size() != sizeof(T)) return false;
  std::memcpy(value, payload.data(), sizeof(T));
  return true;
}

template <typename T>
std::vector<uint8_t> Write(const T& value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  return {bytes, bytes + sizeof(T)};
}

}  // namespace

void SignalEventFd(int fd) {
  const uint64_t one = 1;
  // It fails only if there is no descriptor or its counter is full, that is, it is signalled.
  if (fd >= 0 && write(fd, &one, sizeof(one)) < 0) return;
}

FrontEnd::FrontEnd(uint64_t guest_cid, Observer* observer)
    : guest_cid_(guest_cid), observer_(observer) {}

FrontEnd::~FrontEnd() {
  for (uint32_t i = 0; i < kQueues; ++i) ReplaceKick(i, UniqueFd());
}

bool FrontEnd::Fail(std::string reason) {
  error_ = std::move(reason);
  return false;
}

FrontEnd::Outcome FrontEnd::Handle(VhostUserMessage m) {
  Outcome outcome;
  error_.clear();
  const bool ok = Dispatch(&m, &outcome.reply);
  const bool wants_ack = m.need_reply && (protocol_features_ & kReplyAck);
  if (wants_ack && !outcome.reply) outcome.reply = Write(uint64_t{ok ? 0u : 1u});
  if (!ok) outcome.error = fmt::format("request {}: {}", m.request, error_);
  return outcome;
}

bool FrontEnd::Dispatch(VhostUserMessage* m, std::optional<Payload>* reply) {
  switch (m->request) {
    case kGetFeatures:
      *reply = Write(kOfferedFeatures);
      return true;
    case kGetProtocolFeatures:
      *reply = Write(kOfferedProtocolFeatures);
      return true;
    case kSetFeatures:
      return SetFeatures(m->payload);
    case kSetProtocolFeatures:
      return SetProtocolFeatures(m->payload);
    case kSetOwner:
    case kResetOwner:  // "no longer used": some front ends send it before they stop the rings
      return true;
    case kSetMemTable:
      return SetMemTable(m);
    case kSetVringNum:
      return SetVringNum(m->payload);
    case kSetVringAddr:
      return SetVringAddr(m->payload);
    case kSetVringBase:
      return SetVringBase(m->payload);
    case kGetVringBase:
      return GetVringBase(m->payload, reply);
    case kSetVringKick:
    case kSetVringCall:
    case kSetVringErr:
      return SetVringFd(m);
    case kSetVringEnable:
      return SetVringEnable(m->payload);
    case kGetConfig:
      return GetConfig(m->payload, reply);
    case kSetConfig:
      return Fail("the configuration of a vsock device is read-only");
    default:
      return Fail("not supported");
  }
}

bool FrontEnd::SetFeatures(const Payload& payload) {
  uint64_t features;
  if (!Read(payload, &features)) return Fail("payload size");
  if (features & ~kOfferedFeatures) {
    return Fail(fmt::format("features {:#x} were not offered", features & ~kOfferedFeatures));
  }
  features_ = features;
  for (Ring& ring : rings_) {
    ring.queue.SetFeatures(features & kEventIdx, features & kIndirectDesc);
    // Without protocol features there is no SET_VRING_ENABLE: rings are enabled from the start.
    if (!(features & kProtocolFeaturesBit)) ring.enabled = true;
  }
  return true;
}

bool FrontEnd::SetProtocolFeatures(const Payload& payload) {
  uint64_t features;
  if (!Read(payload, &features)) return Fail("payload size");
  if (features & ~kOfferedProtocolFeatures) return Fail("protocol features that were not offered");
  protocol_features_ = features;
  return true;
}

bool FrontEnd::SetMemTable(VhostUserMessage* m) {
  MemTableHeader header;
  if (m->payload.size() < sizeof(header)) return Fail("payload size");
  std::memcpy(&header, m->payload.data(), sizeof(header));
  if (header.count > kMaxMemoryRegions ||
      m->payload.size() != sizeof(header) + header.count * sizeof(WireRegion) ||
      m->fds.size() != header.count) {
    return Fail(fmt::format("{} regions in {} bytes with {} descriptors", header.count,
                            m->payload.size(), m->fds.size()));
  }
  for (Ring& ring : rings_) ring.queue.Unresolve();
  memory_.reset();
  observer_->OnMemory();
  if (header.count == 0) {
    return Fail(
        "the front end shares no guest memory; QEMU needs "
        "-object memory-backend-memfd,id=mem,size=...,share=on and -machine "
        "...,memory-backend=mem");
  }
  std::vector<MemoryRegion> regions(header.count);
  for (uint32_t i = 0; i < header.count; ++i) {
    WireRegion wire;
    std::memcpy(&wire, m->payload.data() + sizeof(header) + i * sizeof(wire), sizeof(wire));
    regions[i].guest_addr = wire.guest_addr;
    regions[i].size = wire.size;
    regions[i].user_addr = wire.user_addr;
    regions[i].file_offset = wire.file_offset;
    regions[i].fd = std::move(m->fds[i]);
  }
  auto memory = std::make_unique<GuestMemory>();
  std::string why;
  if (!memory->Map(std::move(regions), &why)) return Fail(why);
  memory_ = std::move(memory);
  observer_->OnMemory();
  // Memory may be added or removed while rings run; each is looked up anew.
  for (uint32_t i = 0; i < kQueues; ++i) {
    if (rings_[i].started && !ResolveRing(i)) return false;
  }
  return true;
}

bool FrontEnd::RingIndex(uint32_t index, Ring** ring) {
  if (index >= kQueues) return Fail(fmt::format("there is no ring {}", index));
  *ring = &rings_[index];
  return true;
}

bool FrontEnd::SetVringNum(const Payload& payload) {
  VringState state;
  Ring* ring;
  if (!Read(payload, &state)) return Fail("payload size");
  if (!RingIndex(state.index, &ring)) return false;
  if (ring->started) return Fail("the ring is running");
  if (!ring->queue.SetSize(state.num)) return Fail(fmt::format("ring size {}", state.num));
  return true;
}

bool FrontEnd::SetVringAddr(const Payload& payload) {
  VringAddr addr;
  Ring* ring;
  if (!Read(payload, &addr)) return Fail("payload size");
  if (!RingIndex(addr.index, &ring)) return false;
  if (addr.flags != 0) return Fail("logging was not offered");
  ring->queue.SetAddresses(addr.desc, addr.avail, addr.used);
  return !ring->started || ResolveRing(addr.index);
}

bool FrontEnd::SetVringBase(const Payload& payload) {
  VringState state;
  Ring* ring;
  if (!Read(payload, &state)) return Fail("payload size");
  if (!RingIndex(state.index, &ring)) return false;
  if (ring->started) return Fail("the ring is running");
  if (state.num > UINT16_MAX) return Fail("ring base");
  std::optional<uint16_t>& stopped_at = stopped_at_[state.index];
  if (stopped_at && *stopped_at != state.num) observer_->OnGuestReset();
  stopped_at.reset();
  ring->queue.SetBase(static_cast<uint16_t>(state.num));
  return true;
}

bool FrontEnd::GetVringBase(const Payload& payload, std::optional<Payload>* reply) {
  VringState state;
  Ring* ring;
  if (!Read(payload, &state)) return Fail("payload size");
  if (!RingIndex(state.index, &ring)) return false;
  // "The back-end must stop the ring." No buffer of it is ever kept, so there is nothing to finish.
  ReplaceKick(state.index, UniqueFd());
  ring->started = false;
  ring->queue.Unresolve();
  state.num = ring->queue.base();
  stopped_at_[state.index] = ring->queue.base();
  *reply = Write(state);
  return true;
}

void FrontEnd::ReplaceKick(uint32_t index, UniqueFd fd) {
  observer_->OnKickFd(index, rings_[index].kick.get(), fd.get());
  rings_[index].kick = std::move(fd);
}

bool FrontEnd::SetVringFd(VhostUserMessage* m) {
  uint64_t value;
  Ring* ring;
  if (!Read(m->payload, &value)) return Fail("payload size");
  const uint32_t index = value & kVringIndexMask;
  if (!RingIndex(index, &ring)) return false;
  const bool has_fd = !(value & kVringNoFd);
  if (m->fds.size() != (has_fd ? 1 : 0)) return Fail("number of descriptors");
  UniqueFd fd = has_fd ? std::move(m->fds[0]) : UniqueFd();
  // They are eventfds; whatever else they may be, they must not block this thread.
  if (fd) fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
  if (m->request == kSetVringCall) {
    ring->call = std::move(fd);
    // It comes several times, also while the ring runs (QEMU swaps it as interrupts are masked).
    // What was signalled in between may have gone to the old one; a needless interrupt does no
    // harm.
    if (ring->started) SignalEventFd(ring->call.get());
  } else if (m->request == kSetVringErr) {
    ring->err = std::move(fd);
  } else {
    if (!has_fd) return Fail("rings without a kick descriptor would have to be polled");
    ReplaceKick(index, std::move(fd));
    if (!ring->started) {
      ring->started = true;
      return ResolveRing(index);
    }
  }
  return true;
}

bool FrontEnd::ResolveRing(uint32_t index) {
  if (memory_ == nullptr) {
    return Fail("a ring is started before guest memory is shared");
  }
  std::string why;
  if (!rings_[index].queue.Resolve(*memory_, &why)) return Fail(why);
  return true;
}

bool FrontEnd::SetVringEnable(const Payload& payload) {
  VringState state;
  Ring* ring;
  if (!Read(payload, &state)) return Fail("payload size");
  if (!RingIndex(state.index, &ring)) return false;
  if (!ProtocolFeaturesNegotiated()) return Fail("protocol features were not negotiated");
  if (state.num > 1) return Fail("neither on nor off");
  ring->enabled = state.num == 1;
  return true;
}

bool FrontEnd::ProtocolFeaturesNegotiated() const { return features_ & kProtocolFeaturesBit; }

bool FrontEnd::Active(uint32_t index) const {
  const Ring& ring = rings_[index];
  return ring.started && ring.enabled && ring.queue.resolved() && !ring.queue.broken();
}

bool FrontEnd::GetConfig(const Payload& payload, std::optional<Payload>* reply) {
  ConfigHeader header;
  if (payload.size() < sizeof(header)) return Fail("payload size");
  std::memcpy(&header, payload.data(), sizeof(header));
  // struct virtio_vsock_config is the CID alone (virtio 1.2, section 5.10.4).
  constexpr uint32_t kSize = sizeof(guest_cid_);
  if (payload.size() != sizeof(header) + header.size || header.offset > kSize ||
      header.size > kSize - header.offset) {
    // "A zero-length payload to indicate an error."
    log::Warn("event=vhost_user_bad_config offset={} size={}", header.offset, header.size);
    *reply = Payload();
    return true;
  }
  *reply = payload;
  std::memcpy((*reply)->data() + sizeof(header),
              reinterpret_cast<const uint8_t*>(&guest_cid_) + header.offset, header.size);
  return true;
}

}  // namespace smolvm::vsock
