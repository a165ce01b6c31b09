// What the two halves of the vsock VM test agree on: the services that the host offers, and the
// stream of bytes that both can produce.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smolvm::vsock_vm {

constexpr uint32_t kGuestCid = 42;

// Reads until the guest half-closes, then answers with the number of bytes and their digest.
constexpr uint32_t kSinkPort = 5001;
// Reads one uint64_t, a number of bytes; sends so many and closes.
constexpr uint32_t kSourcePort = 5002;
// Sends back what it gets.
constexpr uint32_t kEchoPort = 5003;
// Sends kSmallMessages messages of kSmallMessageBytes, one write each, then closes.
constexpr uint32_t kSmallPort = 5004;
// Nobody listens.
constexpr uint32_t kDeadPort = 5999;

constexpr uint64_t kBulkBytes = 24u << 20;
constexpr uint32_t kSmallMessages = 4000;
constexpr uint32_t kSmallMessageBytes = 24;

// FNV-1a, 64 bits, by whole bytes.
class Digest {
 public:
  void Add(const void* data, size_t size) {
    const uint8_t* bytes = static_cast<const uint8_t*>(data);
    for (size_t i = 0; i < size; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001b3u;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325u;
};

// Bytes that repeat only after 2^64 - 1 words (xorshift64).
class Pattern {
 public:
  void Fill(uint8_t* out, size_t size) {
    for (size_t i = 0; i < size; ++i) {
      if (left_ == 0) {
        state_ ^= state_ << 13;
        state_ ^= state_ >> 7;
        state_ ^= state_ << 17;
        left_ = 8;
      }
      out[i] = static_cast<uint8_t>(state_ >> (8 * --left_));
    }
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15u;
  int left_ = 0;
};

}  // namespace smolvm::vsock_vm
