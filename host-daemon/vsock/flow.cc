#include "host-daemon/vsock/flow.h"

#include <algorithm>

namespace smolvm::vsock {
namespace {

// What a Linux guest posts as one receive buffer (VIRTIO_VSOCK_DEFAULT_RX_BUF_SIZE).
constexpr uint32_t kGuestReceiveBuffer = 4096;
// A guest with a tiny buffer still gets some packets ahead; one that claims 4 GiB costs us no more
// memory than 8192 counters.
constexpr uint32_t kFewestPackets = 8;
constexpr uint32_t kMostPackets = 8192;

// Whether `a` lies before `b` in a sequence that wraps.
bool Before(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; }

}  // namespace

void Flow::OnHeader(const Header& header) {
  peer_buffer_ = header.buf_alloc;
  peer_forwarded_ = header.fwd_cnt;
  if (header.op == Op::kCreditUpdate) requested_ = false;
  ForgetReadPackets();
}

void Flow::ForgetReadPackets() {
  while (!unread_.empty() && !Before(peer_forwarded_, unread_.front())) unread_.pop_front();
}

void Flow::Stamp(Header* header) {
  header->buf_alloc = own_buffer_;
  header->fwd_cnt = forwarded_;
  told_forwarded_ = forwarded_;
  told_ = true;
}

uint32_t Flow::PacketLimit() const {
  return std::clamp(peer_buffer_ / kGuestReceiveBuffer, kFewestPackets, kMostPackets);
}

uint32_t Flow::SendablePackets() const {
  const uint32_t unread = static_cast<uint32_t>(unread_.size());
  const uint32_t limit = PacketLimit();
  return unread < limit ? limit - unread : 0;
}

uint32_t Flow::Sendable() const {
  // A fwd_cnt ahead of what was sent makes in_flight() huge: no credit, for that stream alone.
  if (in_flight() >= peer_buffer_ || SendablePackets() == 0) return 0;
  return peer_buffer_ - in_flight();
}

void Flow::OnSent(uint32_t bytes) {
  sent_ += bytes;
  unread_.push_back(sent_);
  ++packets_since_asked_;
}

bool Flow::WantsRequest() const {
  const uint32_t limit = PacketLimit();
  return !requested_ && unread_.size() >= limit / 2 && packets_since_asked_ >= limit / 4;
}

void Flow::OnRequested() {
  requested_ = true;
  packets_since_asked_ = 0;
}

bool Flow::OnReceived(uint32_t bytes) {
  if (bytes > own_buffer_ - std::min(own_buffer_, buffered())) return false;
  received_ += bytes;
  return true;
}

bool Flow::UpdateDue() const {
  const uint32_t untold = forwarded_ - told_forwarded_;
  return told_ && untold > 0 && untold >= std::min(own_buffer_, peer_buffer_) / 4;
}

}  // namespace smolvm::vsock
