// The credit accounting of one vsock stream (virtio 1.2, section 5.10.6.3): numbers only, no I/O.
//
// Each side tells the other, in every header, how much buffer it has for this stream (buf_alloc)
// and how many bytes it has taken out of it since the stream began (fwd_cnt, modulo 2^32). A side
// may have no more bytes on the way than the other has buffer. The words here are the host's: bytes
// "sent" go to the guest, bytes "received" come from it and are "forwarded" to the host's socket.
//
// Three things that the specification leaves open, and that guests made necessary:
//  - A Linux guest never has more on the way than *its own* buffer size, whatever ours is. So
//  credit
//    is given back at a quarter of the smaller of the two; later would let a guest with a buffer
//    smaller than ours wait for ever.
//  - Linux from 6.12.92 on charges a stream for the overhead of each unread packet too, and resets
//    it when that exceeds the buffer. So the number of packets that the guest has not yet read is
//    bounded, at one for each 4 KiB of its buffer (the size of its receive buffers).
//  - Linux sends a credit update only when its buffer is nearly full, which many small packets
//  never
//    make it. So before that bound is reached the guest is asked for its counters.
#pragma once

#include <cstdint>
#include <deque>

#include "host-daemon/vsock/packet.h"

namespace smolvm::vsock {

class Flow {
 public:
  explicit Flow(uint32_t own_buffer) : own_buffer_(own_buffer) {}

  // Takes the peer's counters from any packet of it.
  void OnHeader(const Header& header);
  // Puts ours into a packet about to be sent, which then counts as a credit update.
  void Stamp(Header* header);

  // How many bytes may be sent now; 0 if the peer's buffer is full or holds too many packets.
  uint32_t Sendable() const;
  // How many more packets may be sent now.
  uint32_t SendablePackets() const;
  // A packet of `bytes` > 0 has been sent.
  void OnSent(uint32_t bytes);
  // Whether the peer should be asked for its counters (kCreditRequest), because half of the packets
  // that it may leave unread are under way. True again only when it has answered and much more has
  // been sent, so that a guest that does not read is not asked at every answer.
  bool WantsRequest() const;
  void OnRequested();
  // Everything that was sent has been read by the guest.
  bool AllRead() const { return in_flight() == 0; }

  // `bytes` have arrived; false if that is more than the buffer that the peer was told of.
  bool OnReceived(uint32_t bytes);
  // `bytes` have left for the host's socket.
  void OnForwarded(uint32_t bytes) { forwarded_ += bytes; }
  uint32_t buffered() const { return received_ - forwarded_; }
  // Whether the peer has to be told now how much was forwarded.
  bool UpdateDue() const;

 private:
  uint32_t in_flight() const { return sent_ - peer_forwarded_; }
  uint32_t PacketLimit() const;
  void ForgetReadPackets();

  const uint32_t own_buffer_;
  uint32_t received_ = 0;
  uint32_t forwarded_ = 0;
  uint32_t told_forwarded_ = 0;
  bool told_ = false;  // whether the peer has had any header of ours

  uint32_t peer_buffer_ = 0;
  uint32_t peer_forwarded_ = 0;
  uint32_t sent_ = 0;
  bool requested_ = false;  // asked, and not yet answered
  uint32_t packets_since_asked_ = 0;
  std::deque<uint32_t> unread_;  // for each packet that may be unread: sent_ just behind it
};

}  // namespace smolvm::vsock
