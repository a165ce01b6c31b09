#include "tests/unit/vsock/fake_guest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace smolvm::vsock {
namespace {

constexpr uint32_t kSlotBytes = 64 * 1024 + 64;
constexpr uint32_t kMaxPacket = 64 * 1024;  // VIRTIO_VSOCK_MAX_PKT_BUF_SIZE

bool WaitReadable(int fd, int timeout_ms) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, timeout_ms) > 0;
}

UniqueFd EventFd() { return UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

}  // namespace

FakeGuest::FakeGuest(GuestOptions options)
    : options_(options), rx_(&ram_, options.queue_size), tx_(&ram_, options.queue_size) {
  for (int i = 0; i < 40; ++i) tx_slots_.push_back(ram_.AllocHigh(kSlotBytes));
  indirect_table_ = ram_.Alloc(16 * 1024);
}

FakeGuest::~FakeGuest() = default;

// --- QEMU's part

bool FakeGuest::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  socket_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

void FakeGuest::Send(uint32_t request, const std::vector<uint8_t>& payload,
                     const std::vector<int>& fds, bool need_reply, uint32_t flags) {
  std::vector<uint8_t> bytes =
      Pack(request, flags | (need_reply ? 8u : 0u), static_cast<uint32_t>(payload.size()));
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  iovec iov = {bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size() * sizeof(int));
  }
  sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
}

std::optional<std::vector<uint8_t>> FakeGuest::Reply() {
  uint32_t header[3];
  if (!WaitReadable(socket_.get(), kPatienceMs) ||
      recv(socket_.get(), header, sizeof(header), MSG_WAITALL) != sizeof(header)) {
    return std::nullopt;
  }
  EXPECT_EQ(header[1], 5u) << "version 1, reply";
  std::vector<uint8_t> payload(header[2]);
  if (!payload.empty() && recv(socket_.get(), payload.data(), payload.size(), MSG_WAITALL) !=
                              static_cast<ssize_t>(payload.size())) {
    return std::nullopt;
  }
  return payload;
}

uint64_t FakeGuest::Ack(uint32_t request, const std::vector<uint8_t>& payload,
                        const std::vector<int>& fds) {
  Send(request, payload, fds, true);
  const auto reply = Reply();
  if (!reply || reply->size() != 8) return UINT64_MAX;
  uint64_t value;
  std::memcpy(&value, reply->data(), 8);
  return value;
}

bool FakeGuest::WaitForHangup() {
  char byte;
  while (WaitReadable(socket_.get(), kPatienceMs)) {
    if (recv(socket_.get(), &byte, 1, 0) <= 0) return true;
  }
  return false;
}

bool FakeGuest::WaitForRingError() {
  pollfd p[2] = {{fds_[0].err.get(), POLLIN, 0}, {fds_[1].err.get(), POLLIN, 0}};
  return poll(p, 2, kPatienceMs) > 0;
}

void FakeGuest::SendMemTable() {
  std::vector<uint8_t> payload = Pack(uint32_t{2}, uint32_t{0});
  std::vector<int> fds;
  const auto regions = ram_.Regions();
  for (const MemoryRegion& r : regions) {
    const auto one = Pack(r.guest_addr, r.size, r.user_addr, r.file_offset);
    payload.insert(payload.end(), one.begin(), one.end());
    fds.push_back(r.fd.get());
  }
  if (options_.protocol_features) {
    EXPECT_EQ(Ack(request::kSetMemTable, payload, fds), 0u);
  } else {
    Send(request::kSetMemTable, payload, fds);
  }
}

void FakeGuest::ReplaceCallFd(uint32_t index) {
  fds_[index].call = EventFd();
  Send(request::kSetVringCall, Pack(uint64_t{index}), {fds_[index].call.get()});
}

void FakeGuest::SetupRing(uint32_t index, uint16_t base) {
  DriverRing& ring = index == kRxQueue ? rx_ : tx_;
  Send(request::kSetVringNum, Pack(index, uint32_t{ring.size()}));
  Send(request::kSetVringBase, Pack(index, uint32_t{base}));
  Send(request::kSetVringAddr, Pack(index, uint32_t{0}, GuestRam::UserAddress(ring.desc_addr()),
                                    GuestRam::UserAddress(ring.used_addr()),
                                    GuestRam::UserAddress(ring.avail_addr()), uint64_t{0}));
  fds_[index].kick = EventFd();
  SignalEventFd(fds_[index].kick.get());  // as QEMU does
  Send(request::kSetVringKick, Pack(uint64_t{index}), {fds_[index].kick.get()});
}

void FakeGuest::Start(bool driver) {
  uint64_t features = kFeatureVersion1 | (options_.event_idx ? kFeatureEventIdx : 0) |
                      (options_.indirect ? kFeatureIndirect : 0);
  Send(request::kGetFeatures, {});
  ASSERT_TRUE(Reply());
  if (options_.protocol_features) {
    features |= kFeatureProtocol;
    Send(request::kGetProtocolFeatures, {});
    ASSERT_TRUE(Reply());
    Send(request::kSetProtocolFeatures, Pack(uint64_t{1u << 3 | 1u << 9}));
  }
  Send(request::kSetOwner, {});
  for (uint32_t i = 0; i < kQueues; ++i) {  // QEMU sets some before anything else is known
    fds_[i].err = EventFd();
    ReplaceCallFd(i);
    Send(request::kSetVringErr, Pack(uint64_t{i}), {fds_[i].err.get()});
  }
  Send(request::kSetFeatures, Pack(features));
  SendMemTable();
  Resume();
  if (driver) PostReceiveBuffers(options_.queue_size / 2);
}

void FakeGuest::Resume() {
  for (uint32_t i = 0; i < kQueues; ++i) SetupRing(i, base_[i]);
  for (uint32_t i = 0; i < kQueues; ++i) ReplaceCallFd(i);
  if (options_.protocol_features) {
    for (uint32_t i = 0; i < kQueues; ++i) {
      Send(request::kSetVringEnable, Pack(i, uint32_t{1}));
    }
  }
  for (uint32_t i = 0; i < kQueues; ++i) ReplaceCallFd(i);
}

void FakeGuest::Stop() {
  for (uint32_t i = 0; i < kQueues; ++i) {
    Send(request::kGetVringBase, Pack(i, uint32_t{0}));
    const auto reply = Reply();
    ASSERT_TRUE(reply && reply->size() == 8);
    uint32_t state[2];
    std::memcpy(state, reply->data(), 8);
    EXPECT_EQ(state[0], i);
    base_[i] = static_cast<uint16_t>(state[1]);
  }
}

void FakeGuest::ResetAndStart(bool driver) {
  rx_.Reset();
  tx_.Reset();
  rx_buffers_.clear();
  streams_.clear();
  base_[0] = base_[1] = 0;
  Resume();
  if (!driver) return;
  PostReceiveBuffers(options_.queue_size / 2);
}

// --- The driver's part

void FakeGuest::Kick(uint32_t index) {
  DriverRing& ring = index == kRxQueue ? rx_ : tx_;
  if (ring.NeedsKick(options_.event_idx)) SignalEventFd(fds_[index].kick.get());
}

void FakeGuest::PostOne(uint64_t addr) {
  const uint32_t total = 44 + options_.rx_buffer;
  std::vector<Buffer> buffers;
  if (options_.rx_header > 0) {
    buffers.push_back({addr, options_.rx_header, true});
    buffers.push_back({addr + options_.rx_header, total - options_.rx_header, true});
  } else {
    buffers.push_back({addr, total, true});
  }
  rx_buffers_[rx_.Add(buffers)] = addr;
}

void FakeGuest::PostReceiveBuffers(int count) {
  for (int i = 0; i < count; ++i) PostOne(ram_.Alloc(44 + options_.rx_buffer));
  Kick(kRxQueue);
}

void FakeGuest::ReclaimTx() {
  while (tx_.TakeUsed()) {
  }
}

Header FakeGuest::MakeHeader(uint32_t guest_port, uint32_t host_port, Op op) const {
  Header h;
  h.src_cid = kCid;
  h.dst_cid = kHostCid;
  h.src_port = guest_port;
  h.dst_port = host_port;
  h.op = op;
  h.buf_alloc = options_.buffer;
  return h;
}

void FakeGuest::SendPacket(Header header, const std::string& payload,
                           const std::vector<uint32_t>& cuts, bool indirect) {
  // At most half of the ring, 32 packets, is under way; so there is a free slot of the 40.
  ReclaimTx();
  const size_t needed = std::max<size_t>(cuts.size() + 1, tx_.size() / 2);
  while (!indirect && tx_.FreeDescriptors() < needed) {
    if (!tx_.EnableInterrupts() && !WaitReadable(fds_[kTxQueue].call.get(), kPatienceMs)) {
      FAIL() << "the device takes no packets";
    }
    uint64_t count;
    if (read(fds_[kTxQueue].call.get(), &count, sizeof(count)) < 0) count = 0;
    ReclaimTx();
  }
  const uint64_t slot = tx_slots_[next_slot_++ % tx_slots_.size()];
  std::memcpy(ram_.At(slot), &header, sizeof(header));
  std::memcpy(ram_.At(slot) + sizeof(header), payload.data(), payload.size());
  std::vector<Buffer> buffers;
  uint32_t at = 0;
  const uint32_t total = static_cast<uint32_t>(sizeof(header) + payload.size());
  for (uint32_t cut : cuts) {
    buffers.push_back({slot + at, cut});
    at += cut;
  }
  if (at < total) buffers.push_back({slot + at, total - at});
  if (indirect) {
    tx_.AddIndirect(indirect_table_, buffers);
  } else {
    tx_.Add(buffers);
  }
  Kick(kTxQueue);
}

std::optional<FakeGuest::Received> FakeGuest::ReceivePacket(int timeout_ms) {
  std::optional<DriverRing::Used> used;
  while (!(used = rx_.TakeUsed())) {
    if (options_.event_idx && rx_.EnableInterrupts()) continue;
    if (!WaitReadable(fds_[kRxQueue].call.get(), timeout_ms)) return std::nullopt;
    uint64_t count;
    if (read(fds_[kRxQueue].call.get(), &count, sizeof(count)) < 0) return std::nullopt;
  }
  const uint64_t addr = rx_buffers_.at(used->head);
  rx_buffers_.erase(used->head);
  Received packet;
  std::memcpy(&packet.header, ram_.At(addr), sizeof(Header));
  const uint32_t len = packet.header.len;
  EXPECT_EQ(used->len, sizeof(Header) + len);
  EXPECT_LE(len, options_.rx_buffer);
  packet.payload.assign(reinterpret_cast<char*>(ram_.At(addr)) + sizeof(Header), len);
  std::memset(ram_.At(addr), 0xee, sizeof(Header) + len);
  if (repost) {
    PostOne(addr);
    Kick(kRxQueue);
  }
  return packet;
}

// --- The socket layer's part

GuestStream* FakeGuest::Find(uint32_t guest_port, uint32_t host_port) {
  auto it = streams_.find({guest_port, host_port});
  return it == streams_.end() ? nullptr : it->second.get();
}

GuestStream* FakeGuest::Open(uint32_t host_port, uint32_t guest_port) {
  auto stream = std::make_unique<GuestStream>();
  stream->guest_port = guest_port != 0 ? guest_port : next_port_++;
  stream->host_port = host_port;
  GuestStream* s = stream.get();
  streams_[{s->guest_port, s->host_port}] = std::move(stream);
  SendControl(s, Op::kRequest);
  EXPECT_TRUE(PumpUntil([s] { return s->established || s->reset; }));
  return s;
}

void FakeGuest::SendControl(GuestStream* s, Op op, uint32_t flags) {
  Header h = MakeHeader(s->guest_port, s->host_port, op);
  h.flags = flags;
  h.fwd_cnt = s->told_forwarded = s->forwarded;
  SendPacket(h);
}

bool FakeGuest::Pump(int timeout_ms) {
  const auto packet = ReceivePacket(timeout_ms);
  if (packet) Dispatch(*packet);
  return packet.has_value();
}

void FakeGuest::Dispatch(const Received& packet) {
  const Header h = packet.header;
  EXPECT_EQ(h.src_cid, kHostCid);
  EXPECT_EQ(h.dst_cid, kCid);
  EXPECT_EQ(h.type, kTypeStream);
  GuestStream* s = Find(h.dst_port, h.src_port);
  if (s == nullptr) {
    if (h.op == Op::kRst) return;
    if (h.op == Op::kRequest) {  // every port of this guest listens
      auto stream = std::make_unique<GuestStream>();
      stream->guest_port = h.dst_port;
      stream->host_port = h.src_port;
      stream->established = true;
      stream->peer_buffer = h.buf_alloc;
      SendControl(stream.get(), Op::kResponse);
      streams_[{h.dst_port, h.src_port}] = std::move(stream);
      return;
    }
    SendPacket(MakeHeader(h.dst_port, h.src_port, Op::kRst));
    return;
  }
  s->peer_buffer = h.buf_alloc;
  s->peer_forwarded = h.fwd_cnt;
  switch (h.op) {
    case Op::kResponse:
      s->established = true;
      break;
    case Op::kRst:
      s->reset = true;
      break;
    case Op::kShutdown:
      s->shut |= h.flags;
      break;
    case Op::kRw:
      EXPECT_FALSE(s->shut & kShutdownSend) << "bytes behind the end";
      s->in += packet.payload;
      EXPECT_LE(s->in.size(), options_.buffer) << "more than the guest has room for";
      s->most_unread_packets = std::max(s->most_unread_packets, ++s->unread_packets);
      break;
    case Op::kCreditRequest:
      ++credit_requests;
      if (answer_credit_requests) SendControl(s, Op::kCreditUpdate);
      break;
    case Op::kCreditUpdate:
      break;
    default:
      ADD_FAILURE() << "op " << static_cast<int>(h.op);
  }
}

size_t FakeGuest::Write(GuestStream* s, const char* data, size_t size) {
  size_t done = 0;
  while (done < size && !s->reset) {
    // Linux never has more under way than its own buffer holds.
    const uint32_t own = options_.buffer - std::min(options_.buffer, s->sent - s->peer_forwarded);
    const size_t n = std::min<size_t>({size - done, s->Credit(), own, kMaxPacket});
    if (n == 0) break;
    Header h = MakeHeader(s->guest_port, s->host_port, Op::kRw);
    h.len = static_cast<uint32_t>(n);
    h.fwd_cnt = s->told_forwarded = s->forwarded;
    SendPacket(h, std::string(data + done, n));
    s->sent += static_cast<uint32_t>(n);
    done += n;
  }
  return done;
}

std::string FakeGuest::Read(GuestStream* s) {
  std::string data = std::exchange(s->in, "");
  s->forwarded += static_cast<uint32_t>(data.size());
  s->unread_packets = 0;
  // Linux tells the host only when the host may soon have to stop.
  if (options_.buffer - (s->forwarded - s->told_forwarded) < kMaxPacket) {
    SendControl(s, Op::kCreditUpdate);
  }
  return data;
}

std::string FakeGuest::ReadExactly(GuestStream* s, size_t size) {
  std::string data = Read(s);
  while (data.size() < size) {
    if (s->reset || s->shut & kShutdownSend || !Pump()) break;
    data += Read(s);
  }
  EXPECT_EQ(data.size(), size);
  return data;
}

void FakeGuest::Shutdown(GuestStream* s, uint32_t flags) { SendControl(s, Op::kShutdown, flags); }

}  // namespace smolvm::vsock
