#include "host-daemon/vsock/mux.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>

#include "protocol/log/log.h"

namespace smolvm::vsock {
namespace {

using std::chrono::milliseconds;

// How often the guest of a stalled stream is asked whether it has read: at first as soon as a
// program might have, later so rarely that it costs nothing.
constexpr milliseconds kFirstPoll{1};
constexpr milliseconds kSlowestPoll{64};

// One read fills at most this many receive buffers (128 KiB on Linux guests), so that streams take
// turns.
constexpr uint32_t kMaxBurst = 32;
// Pieces of one receive buffer, and of one read, that are used; a driver needs two and 64.
constexpr size_t kMaxPiecesPerBuffer = 32;
static_assert(kMaxBurst * kMaxPiecesPerBuffer <= 1024, "IOV_MAX");

// The ports of streams that the host opens: the upper half, where no service listens.
constexpr uint32_t kFirstHostPort = 0x8000'0000;

uint64_t Bytes(const std::vector<iovec>& v) {
  uint64_t total = 0;
  for (const iovec& piece : v) total += piece.iov_len;
  return total;
}

}  // namespace

Mux::Mux(uint64_t guest_cid, MuxLimits limits, ConnectHandler handler, SocketWatcher* watcher)
    : guest_cid_(guest_cid),
      limits_(limits),
      handler_(std::move(handler)),
      watcher_(watcher),
      next_host_port_(kFirstHostPort),
      burst_(kMaxBurst),
      burst_payload_(kMaxBurst) {}

Mux::~Mux() { ResetAll(); }

// --- From the guest.

Mux::Progress Mux::DrainTx(Virtqueue* tx, int budget) {
  tx->DisableKicks();
  while (budget-- > 0) {
    // Answers wait for receive buffers; the guest has to supply them before it may cause more.
    tx_paused_ = resets_.size() >= kMaxResets;
    if (tx_paused_) return Progress::kDone;
    const Virtqueue::PopResult result = tx->Pop(&tx_chain_);
    if (result == Virtqueue::PopResult::kBroken) return Progress::kDone;
    if (result == Virtqueue::PopResult::kEmpty) {
      if (!tx->EnableKicks()) return Progress::kDone;
      tx->DisableKicks();
      continue;
    }
    switch (ParsePacket(&tx_chain_, &packet_)) {
      case ParseResult::kPacket:
        HandlePacket(&packet_);
        break;
      case ParseResult::kShort:
        log::Debug("event=vsock_packet_short guest_cid={}", guest_cid_);
        break;
      case ParseResult::kOverrun:
        log::Debug("event=vsock_packet_overrun guest_cid={}", guest_cid_);
        Refuse(packet_.header);
        break;
    }
    tx->Push(tx_chain_.head, 0);
  }
  return Progress::kMore;
}

void Mux::HandlePacket(Packet* packet) {
  const Header& h = packet->header;
  // A guest that lies about who it is gets no answer: there is nobody to send it to.
  if (h.src_cid != guest_cid_) return;
  if (h.dst_cid != kHostCid || h.type != kTypeStream) return Refuse(h);
  if (Connection* c = FindByPorts({h.src_port, h.dst_port})) return HandleForConnection(c, packet);
  if (h.op == Op::kRequest) return HandleRequest(h);
  Refuse(h);
}

void Mux::HandleRequest(const Header& h) {
  if (connections_.size() >= limits_.max_connections) {
    if (log_limit_.Allow()) {
      log::Warn(
          "event=vsock_refused reason=too_many_connections guest_cid={} limit={} suppressed={}",
          guest_cid_, limits_.max_connections, log_limit_.TakeSuppressed());
    }
    return Refuse(h);
  }
  UniqueFd fd(handler_ ? handler_(h.src_port, h.dst_port) : -1);
  if (!fd) return Refuse(h);
  Connection* c = Add({h.src_port, h.dst_port}, std::move(fd), true);
  if (c == nullptr) return Refuse(h);
  c->OnHeader(h);
  Consider(c);
}

void Mux::HandleForConnection(Connection* c, Packet* packet) {
  const Header h = packet->header;
  c->OnHeader(h);
  bool ok = true;
  switch (h.op) {
    case Op::kRst:
      return Detach(c);
    case Op::kResponse:
      ok = c->OnResponse();
      break;
    case Op::kRw:
      ok = c->OnData(&packet->payload);
      break;
    case Op::kShutdown:
      if (c->OnGuestShutdown(h.flags)) {
        // The guest waits for this reset, for eight seconds, before its close() is complete.
        SendReset(c->ports());
        return Detach(c);
      }
      break;
    case Op::kCreditUpdate:
      break;
    case Op::kCreditRequest:
      c->OnCreditRequest();
      break;
    default:  // kRequest for a stream that is there, and what the protocol does not know
      ok = false;
  }
  if (!ok) {
    SendReset(c->ports());
    return Erase(c);
  }
  Consider(c);
}

void Mux::Refuse(const Header& h) {
  if (h.op == Op::kRst) return;  // never answer a reset with a reset
  Header reset;
  reset.src_cid = h.dst_cid;
  reset.dst_cid = h.src_cid;
  reset.src_port = h.dst_port;
  reset.dst_port = h.src_port;
  reset.type = h.type;
  reset.op = Op::kRst;
  resets_.push_back(reset);
}

void Mux::SendReset(Ports ports) { resets_.push_back(MakeHeader(ports, Op::kRst)); }

// --- The table.

Connection* Mux::FindByPorts(Ports ports) {
  auto it = by_ports_.find(ports.Key());
  return it == by_ports_.end() ? nullptr : FindById(it->second);
}

Connection* Mux::FindById(uint64_t id) {
  auto it = connections_.find(id);
  return it == connections_.end() ? nullptr : it->second.get();
}

Connection* Mux::Add(Ports ports, UniqueFd fd, bool initiated_by_guest) {
  const uint64_t id = next_id_++;
  const int raw = fd.get();
  auto connection =
      std::make_unique<Connection>(id, ports, std::move(fd), limits_.buffer, initiated_by_guest);
  if (!watcher_->Watch(raw, id)) return nullptr;
  by_ports_[ports.Key()] = id;
  return (connections_[id] = std::move(connection)).get();
}

void Mux::Detach(Connection* c) {
  by_ports_.erase(c->ports().Key());
  c->Orphan();
  if (c->Drained()) Erase(c);
}

void Mux::CloseSocket(Connection* c) {
  if (c->fd() < 0) return;
  watcher_->Unwatch(c->fd());
  c->TakeFd().reset();
}

void Mux::Erase(Connection* c) {
  CloseSocket(c);
  auto it = by_ports_.find(c->ports().Key());
  // The ports of an orphan may belong to a new stream already.
  if (it != by_ports_.end() && it->second == c->id()) by_ports_.erase(it);
  stalled_.erase(c->id());
  if (c->queued) std::erase(ready_, c->id());
  connections_.erase(c->id());
}

void Mux::ResetAll() {
  while (!connections_.empty()) Erase(connections_.begin()->second.get());
  ready_.clear();
  resets_.clear();
}

bool Mux::ConnectToGuest(UniqueFd fd, uint32_t guest_port) {
  if (connections_.size() >= limits_.max_connections) return false;
  Ports ports{guest_port, 0};
  do {
    ports.host = next_host_port_;
    next_host_port_ = std::max(next_host_port_ + 1, kFirstHostPort);
  } while (by_ports_.count(ports.Key()) != 0);
  Connection* c = Add(ports, std::move(fd), false);
  if (c == nullptr) return false;
  Consider(c);
  return true;
}

// --- From the host.

void Mux::OnSocket(uint64_t id, uint32_t events) {
  Connection* c = FindById(id);
  if (c == nullptr || c->fd() < 0) return;
  if (events & (EPOLLIN | EPOLLRDHUP)) c->OnReadable();
  if (events & (EPOLLHUP | EPOLLERR)) c->OnHangup();
  if (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) c->OnWritable();
  if (c->orphan() && c->Drained()) return Erase(c);
  Consider(c);
}

void Mux::Consider(Connection* c) {
  if (c->SocketDone()) CloseSocket(c);
  if (c->Stalled()) {
    if (stalled_.insert(c->id()).second) {
      c->poll_delay = kFirstPoll;
      c->next_poll = Clock::now() + kFirstPoll;
    }
  } else {
    stalled_.erase(c->id());
  }
  if (c->queued || !c->Wants()) return;
  c->queued = true;
  ready_.push_back(c->id());
}

void Mux::Tick(Clock::time_point now) {
  for (uint64_t id : stalled_) {
    Connection* c = FindById(id);
    if (now < c->next_poll) continue;
    c->poll_delay = std::min<Clock::duration>(c->poll_delay * 2, kSlowestPoll);
    c->next_poll = now + c->poll_delay;
    c->AskForCredit();
    if (!c->queued) {
      c->queued = true;
      ready_.push_back(id);
    }
  }
}

std::optional<Mux::Clock::time_point> Mux::NextTick() const {
  std::optional<Clock::time_point> next;
  for (uint64_t id : stalled_) {
    const Clock::time_point t = connections_.at(id)->next_poll;
    if (!next || t < *next) next = t;
  }
  return next;
}

// --- To the guest.

Mux::Progress Mux::FillRx(Virtqueue* rx, int budget) {
  bool more = true;
  while (more && budget-- > 0) more = FillOne(rx);
  // Room for answers lets the guest's packets be taken again.
  const bool unpaused = tx_paused_ && resets_.size() < kMaxResets;
  return more || unpaused ? Progress::kMore : Progress::kDone;
}

bool Mux::FillOne(Virtqueue* rx) {
  if (!resets_.empty()) {
    if (!PopReceiveBuffer(rx, &burst_[0])) return false;
    SendControl(rx, &burst_[0], resets_.front(), nullptr);
    resets_.pop_front();
    return true;
  }
  if (ready_.empty()) return false;
  Connection* c = FindById(ready_.front());  // Erase keeps the list free of what is gone
  if (c->Wants() && !Serve(rx, c)) return false;
  ready_.pop_front();
  c->queued = false;
  Consider(c);
  return true;
}

bool Mux::PopReceiveBuffer(Virtqueue* rx, Chain* chain) {
  Virtqueue::PopResult result = rx->Pop(chain);
  if (result == Virtqueue::PopResult::kEmpty) {
    if (!rx->EnableKicks()) return false;
    rx->DisableKicks();
    result = rx->Pop(chain);
  }
  if (result != Virtqueue::PopResult::kChain) return false;
  if (chain->writable_bytes > sizeof(Header)) return true;
  rx->Break("a receive buffer without room for a packet");
  return false;
}

Header Mux::MakeHeader(Ports ports, Op op) const {
  Header h;
  h.src_cid = kHostCid;
  h.dst_cid = guest_cid_;
  h.src_port = ports.host;
  h.dst_port = ports.guest;
  h.op = op;
  return h;
}

void Mux::SendControl(Virtqueue* rx, Chain* chain, Header header, Connection* c) {
  if (c != nullptr) c->flow().Stamp(&header);
  PutBytes(&chain->writable, &header, sizeof(header));
  rx->Push(chain->head, sizeof(header));
}

bool Mux::Serve(Virtqueue* rx, Connection* c) {
  if (c->flow().WantsRequest()) c->AskForCredit();
  if (!c->ControlDue()) return SendData(rx, c);
  if (!PopReceiveBuffer(rx, &burst_[0])) return false;
  const std::optional<Header> control = c->TakeControl();
  Header h = MakeHeader(c->ports(), control->op);
  h.flags = control->flags;
  SendControl(rx, &burst_[0], h, c);
  return true;
}

bool Mux::SendData(Virtqueue* rx, Connection* c) {
  const uint32_t buffers = std::min({c->burst, kMaxBurst, c->flow().SendablePackets()});
  uint64_t room = c->flow().Sendable();
  uint32_t popped = 0;
  burst_iov_.clear();
  // The payload's places come first: how long each packet is turns out when the socket is read.
  while (popped < buffers && room > 0 && PopReceiveBuffer(rx, &burst_[popped])) {
    std::vector<iovec>& payload = burst_payload_[popped];
    payload = burst_[popped].writable;
    Skip(&payload, sizeof(Header));
    if (payload.size() > kMaxPiecesPerBuffer) payload.resize(kMaxPiecesPerBuffer);
    Truncate(&payload, room);
    burst_iov_.insert(burst_iov_.end(), payload.begin(), payload.end());
    room -= Bytes(payload);
    ++popped;
  }
  if (popped == 0) return false;
  uint32_t left = c->ReadHost(burst_iov_);
  uint32_t used = 0;
  for (; left > 0; ++used) {
    Header h = MakeHeader(c->ports(), Op::kRw);
    h.len = static_cast<uint32_t>(std::min<uint64_t>(left, Bytes(burst_payload_[used])));
    c->flow().Stamp(&h);
    c->flow().OnSent(h.len);
    PutBytes(&burst_[used].writable, &h, sizeof(h));
    rx->Push(burst_[used].head, sizeof(h) + h.len);
    left -= h.len;
  }
  // A long message earns the stream longer reads, a short one returns to short ones: popping
  // buffers in vain costs time.
  if (used == popped && left == 0) c->burst = std::min(popped * 2, kMaxBurst);
  if (used < popped) c->burst = std::max(used, 1u);
  rx->Unpop(static_cast<uint16_t>(popped - used));
  return true;
}

}  // namespace smolvm::vsock
