// The device's side of one split virtqueue (virtio 1.2, section 2.7), over mapped guest memory.
//
// The guest writes everything that is read here, at any time, also while it is being read. So each
// field is loaded exactly once into local memory and checked there; indices are reduced before use;
// walks are bounded by the size of the table, so that a loop of descriptors ends. Whatever a
// correct driver cannot produce makes the queue *broken*: it stays so until it is configured again,
// and the reason is kept for the log.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <string>
#include <vector>

#include "host-daemon/vsock/guest_memory.h"

namespace smolvm::vsock {

// Virtio allows 32768 (section 2.7); front ends offer 128 for vsock and QEMU never more than 1024.
inline constexpr uint32_t kMaxQueueSize = 1024;
// The most descriptors of an indirect table that are accepted.
inline constexpr uint32_t kMaxIndirectDescriptors = 1024;

// One buffer that the driver made available, as host memory.
struct Chain {
  uint16_t head = 0;
  std::vector<iovec> readable;  // device-readable, that is, written by the guest
  std::vector<iovec> writable;
  uint64_t readable_bytes = 0;
  uint64_t writable_bytes = 0;

  void Clear();
};

// Threads: one only.
class Virtqueue {
 public:
  // Configuration, any order, while stopped. SetSize is false unless `size` is a power of two
  // within kMaxQueueSize. Addresses are the front end's.
  bool SetSize(uint32_t size);
  void SetAddresses(uint64_t desc, uint64_t avail, uint64_t used);
  void SetBase(uint16_t next_avail);
  void SetFeatures(bool event_idx, bool indirect);
  // Finds the rings in `memory`, which must outlive the next Resolve or Unresolve. False, with a
  // reason, if a ring is misaligned or not wholly in guest memory.
  bool Resolve(const GuestMemory& memory, std::string* error);
  void Unresolve();
  bool resolved() const { return desc_ != nullptr; }
  // The next available index to be taken: what GET_VRING_BASE returns.
  uint16_t base() const { return next_avail_; }

  enum class PopResult { kChain, kEmpty, kBroken };
  PopResult Pop(Chain* chain);
  // Gives back the `count` latest chains popped and not pushed.
  void Unpop(uint16_t count) { next_avail_ -= count; }
  // Hands a chain back with `written` bytes in its writable part. Visible to the driver at once.
  void Push(uint16_t head, uint32_t written);
  // Whether the driver asked to hear of what was pushed since the last call.
  bool ShouldNotify();

  // Asks the driver not to kick / to kick when it adds the next buffer. EnableKicks returns whether
  // buffers are there already, in which case no kick may come for them.
  void DisableKicks();
  bool EnableKicks();

  // Whether the driver has made a buffer available since the ring was new. A ring that is not
  // resolved yet tells nothing.
  bool Touched() const;

  bool broken() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  // Lets the user of a queue declare it broken for what its buffers hold.
  void Break(std::string reason) { error_ = std::move(reason); }

 private:
  struct Descriptor {
    uint64_t addr;
    uint32_t len;
    uint16_t flags;
    uint16_t next;
  };
  static Descriptor Load(const uint8_t* table, uint32_t index);
  bool WalkDirect(uint16_t head, Chain* chain);
  bool WalkIndirect(const Descriptor& table, Chain* chain);
  bool Append(const Descriptor& d, Chain* chain);
  uint16_t AvailIndex() const;
  bool Fail(std::string reason);

  uint32_t size_ = 0;
  uint64_t desc_user_ = 0;
  uint64_t avail_user_ = 0;
  uint64_t used_user_ = 0;
  bool event_idx_ = false;
  bool indirect_ = false;

  const GuestMemory* memory_ = nullptr;
  uint8_t* desc_ = nullptr;
  uint8_t* avail_ = nullptr;
  uint8_t* used_ = nullptr;
  uint16_t next_avail_ = 0;
  uint16_t next_used_ = 0;
  uint16_t notified_used_ = 0;  // next_used_ at the last ShouldNotify
  std::string error_;
};

}  // namespace smolvm::vsock
