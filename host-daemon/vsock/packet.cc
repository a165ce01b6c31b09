#include "host-daemon/vsock/packet.h"

#include <algorithm>
#include <cstring>

namespace smolvm::vsock {
namespace {

uint64_t TotalBytes(const std::vector<iovec>& v) {
  uint64_t total = 0;
  for (const iovec& piece : v) total += piece.iov_len;
  return total;
}

// Calls copy(piece, done, n) for the pieces of the first `len` bytes, then removes those bytes.
template <typename Copy>
bool Walk(std::vector<iovec>* v, size_t len, Copy copy) {
  if (TotalBytes(*v) < len) return false;
  size_t done = 0;
  for (const iovec& piece : *v) {
    if (done == len) break;
    const size_t n = std::min(piece.iov_len, len - done);
    copy(piece.iov_base, done, n);
    done += n;
  }
  Skip(v, len);
  return true;
}

}  // namespace

bool TakeBytes(std::vector<iovec>* from, void* to, size_t len) {
  return Walk(from, len, [to](void* piece, size_t done, size_t n) {
    std::memcpy(static_cast<char*>(to) + done, piece, n);
  });
}

bool PutBytes(std::vector<iovec>* to, const void* from, size_t len) {
  return Walk(to, len, [from](void* piece, size_t done, size_t n) {
    std::memcpy(piece, static_cast<const char*>(from) + done, n);
  });
}

bool Truncate(std::vector<iovec>* v, uint64_t len) {
  size_t kept = 0;
  for (; kept < v->size() && len > 0; ++kept) {
    iovec& piece = (*v)[kept];
    piece.iov_len = std::min<uint64_t>(piece.iov_len, len);
    len -= piece.iov_len;
  }
  v->resize(kept);
  return len == 0;
}

void Skip(std::vector<iovec>* v, uint64_t len) {
  size_t gone = 0;
  while (gone < v->size() && len >= (*v)[gone].iov_len) len -= (*v)[gone++].iov_len;
  v->erase(v->begin(), v->begin() + static_cast<std::ptrdiff_t>(gone));
  if (len == 0 || v->empty()) return;
  iovec& first = v->front();
  first.iov_base = static_cast<char*>(first.iov_base) + len;
  first.iov_len -= len;
}

ParseResult ParsePacket(Chain* chain, Packet* packet) {
  packet->payload.clear();
  if (!TakeBytes(&chain->readable, &packet->header, sizeof(Header))) return ParseResult::kShort;
  packet->payload.swap(chain->readable);
  return Truncate(&packet->payload, packet->header.len) ? ParseResult::kPacket
                                                        : ParseResult::kOverrun;
}

}  // namespace smolvm::vsock
