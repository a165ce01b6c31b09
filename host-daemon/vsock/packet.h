// The header of every packet on a vsock queue (virtio 1.2, section 5.10.6).
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "host-daemon/vsock/virtqueue.h"

namespace smolvm::vsock {

inline constexpr uint64_t kHostCid = 2;  // "well-known CID for the host", section 5.10.4

enum class Op : uint16_t {
  kInvalid = 0,
  kRequest = 1,
  kResponse = 2,
  kRst = 3,
  kShutdown = 4,
  kRw = 5,
  kCreditUpdate = 6,
  kCreditRequest = 7,
};
inline constexpr uint16_t kTypeStream = 1;
// Flags of kShutdown: the sender will not receive, will not send, any more.
inline constexpr uint32_t kShutdownReceive = 1;
inline constexpr uint32_t kShutdownSend = 2;
inline constexpr uint32_t kShutdownBoth = kShutdownReceive | kShutdownSend;

// struct virtio_vsock_hdr: little-endian, packed, as this is on every machine that we run on.
struct [[gnu::packed]] Header {
  uint64_t src_cid = 0;
  uint64_t dst_cid = 0;
  uint32_t src_port = 0;
  uint32_t dst_port = 0;
  uint32_t len = 0;
  uint16_t type = kTypeStream;
  Op op = Op::kInvalid;
  uint32_t flags = 0;
  uint32_t buf_alloc = 0;
  uint32_t fwd_cnt = 0;
};
static_assert(sizeof(Header) == 44);

// Copies the first `len` bytes of `from` and removes them from it; false, with nothing removed, if
// there are fewer. A driver may split header and payload over descriptors as it likes, so neither
// may be assumed to begin or end with one (virtio 1.2, section 2.7.4).
bool TakeBytes(std::vector<iovec>* from, void* to, size_t len);
// Copies `len` bytes into the first ones of `to` and removes them from it; the same otherwise.
bool PutBytes(std::vector<iovec>* to, const void* from, size_t len);
// Cuts `v` to its first `len` bytes; false if it holds fewer.
bool Truncate(std::vector<iovec>* v, uint64_t len);
// Removes the first `len` bytes, of which there are at least so many.
void Skip(std::vector<iovec>* v, uint64_t len);

// A packet that the guest sent: the header once copied, and the payload where it lies.
struct Packet {
  Header header;
  std::vector<iovec> payload;
};

enum class ParseResult {
  kPacket,
  kShort,    // fewer bytes than a header: nothing to answer
  kOverrun,  // the header is there, but claims more payload than was sent
};
// Takes the payload's iovecs out of `chain`.
ParseResult ParsePacket(Chain* chain, Packet* packet);

}  // namespace smolvm::vsock
