#include "host-daemon/vsock/virtqueue.h"

#include <fmt/format.h>

#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

namespace smolvm::vsock {
namespace {

static_assert(std::endian::native == std::endian::little, "ring fields are little-endian");

// Descriptor flags, and the flags of the two rings (virtio 1.2, sections 2.7.5, 2.7.6, 2.7.8).
constexpr uint16_t kDescNext = 1;
constexpr uint16_t kDescWrite = 2;
constexpr uint16_t kDescIndirect = 4;
constexpr uint16_t kAvailNoInterrupt = 1;
constexpr uint16_t kUsedNoNotify = 1;

// Sizes and offsets of the same sections. Both rings start with flags and idx, two bytes each, and
// end with a two-byte event field behind `size` entries.
constexpr uint32_t kDescSize = 16;
constexpr uint32_t kUsedEntrySize = 8;
constexpr uint32_t kRingHeader = 4;

uint16_t Load16(const uint8_t* p, std::memory_order order) {
  auto* field = reinterpret_cast<uint16_t*>(const_cast<uint8_t*>(p));
  return std::atomic_ref<uint16_t>(*field).load(order);
}

void Store16(uint8_t* p, uint16_t value, std::memory_order order) {
  std::atomic_ref<uint16_t>(*reinterpret_cast<uint16_t*>(p)).store(value, order);
}

}  // namespace

void Chain::Clear() {
  head = 0;
  readable.clear();
  writable.clear();
  readable_bytes = 0;
  writable_bytes = 0;
}

bool Virtqueue::SetSize(uint32_t size) {
  if (size == 0 || size > kMaxQueueSize || !std::has_single_bit(size)) return false;
  size_ = size;
  return true;
}

void Virtqueue::SetAddresses(uint64_t desc, uint64_t avail, uint64_t used) {
  desc_user_ = desc;
  avail_user_ = avail;
  used_user_ = used;
}

void Virtqueue::SetBase(uint16_t next_avail) { next_avail_ = next_avail; }

void Virtqueue::SetFeatures(bool event_idx, bool indirect) {
  event_idx_ = event_idx;
  indirect_ = indirect;
}

bool Virtqueue::Resolve(const GuestMemory& memory, std::string* error) {
  Unresolve();
  if (size_ == 0) {
    *error = "the ring has no size";
    return false;
  }
  if (desc_user_ % 16 != 0 || avail_user_ % 2 != 0 || used_user_ % 4 != 0) {
    *error = "a ring is misaligned";
    return false;
  }
  uint8_t* desc = memory.FromUser(desc_user_, uint64_t{kDescSize} * size_);
  uint8_t* avail = memory.FromUser(avail_user_, kRingHeader + 2 * size_ + 2);
  uint8_t* used = memory.FromUser(used_user_, kRingHeader + kUsedEntrySize * size_ + 2);
  // The file offset of a region might not be a multiple of 4, so the host addresses are checked
  // too.
  auto misaligned = [](uint8_t* p) { return reinterpret_cast<uintptr_t>(p) % 4 != 0; };
  if (desc == nullptr || avail == nullptr || used == nullptr || misaligned(desc) ||
      reinterpret_cast<uintptr_t>(avail) % 2 != 0 || misaligned(used)) {
    *error = "a ring is not in guest memory";
    return false;
  }
  memory_ = &memory;
  desc_ = desc;
  avail_ = avail;
  used_ = used;
  next_used_ = Load16(used_ + 2, std::memory_order_relaxed);
  notified_used_ = next_used_;
  error_.clear();
  return true;
}

void Virtqueue::Unresolve() {
  memory_ = nullptr;
  desc_ = avail_ = used_ = nullptr;
}

bool Virtqueue::Fail(std::string reason) {
  error_ = std::move(reason);
  return false;
}

uint16_t Virtqueue::AvailIndex() const { return Load16(avail_ + 2, std::memory_order_acquire); }

Virtqueue::Descriptor Virtqueue::Load(const uint8_t* table, uint32_t index) {
  // Copied first and judged later: the compiler may not read the guest's memory a second time.
  Descriptor d;
  std::memcpy(&d, table + uint64_t{kDescSize} * index, kDescSize);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return d;
}

Virtqueue::PopResult Virtqueue::Pop(Chain* chain) {
  if (broken() || !resolved()) return PopResult::kBroken;
  const uint16_t available = AvailIndex() - next_avail_;
  if (available == 0) return PopResult::kEmpty;
  if (available > size_) {
    Fail(fmt::format("{} buffers available in a ring of {}", available, size_));
    return PopResult::kBroken;
  }
  const uint32_t slot = next_avail_ & (size_ - 1);
  chain->Clear();
  chain->head = Load16(avail_ + kRingHeader + 2 * slot, std::memory_order_relaxed);
  if (!WalkDirect(chain->head, chain)) return PopResult::kBroken;
  ++next_avail_;
  return PopResult::kChain;
}

bool Virtqueue::WalkDirect(uint16_t head, Chain* chain) {
  uint32_t index = head;
  for (uint32_t steps = 0; steps < size_; ++steps) {
    if (index >= size_) return Fail(fmt::format("descriptor {} of {}", index, size_));
    const Descriptor d = Load(desc_, index);
    if (d.flags & kDescIndirect) {
      if (!indirect_) return Fail("an indirect descriptor that was not negotiated");
      if (d.flags & kDescNext) return Fail("an indirect descriptor with a successor");
      return WalkIndirect(d, chain);
    }
    if (!Append(d, chain)) return false;
    if (!(d.flags & kDescNext)) return true;
    index = d.next;
  }
  return Fail("a loop of descriptors");
}

bool Virtqueue::WalkIndirect(const Descriptor& table, Chain* chain) {
  const uint32_t count = table.len / kDescSize;
  if (table.len % kDescSize != 0 || count == 0 || count > kMaxIndirectDescriptors) {
    return Fail(fmt::format("an indirect table of {} bytes", table.len));
  }
  const uint8_t* base = memory_->Contiguous(table.addr, table.len);
  if (base == nullptr) return Fail("an indirect table outside guest memory");
  uint32_t index = 0;
  for (uint32_t steps = 0; steps < count; ++steps) {
    const Descriptor d = Load(base, index);
    if (d.flags & kDescIndirect) return Fail("an indirect descriptor in an indirect table");
    if (!Append(d, chain)) return false;
    if (!(d.flags & kDescNext)) return true;
    index = d.next;
    if (index >= count) return Fail(fmt::format("indirect descriptor {} of {}", index, count));
  }
  return Fail("a loop of indirect descriptors");
}

bool Virtqueue::Append(const Descriptor& d, Chain* chain) {
  if (d.flags & kDescWrite) {
    chain->writable_bytes += d.len;  // at most 2 * 1024 times 4 GiB: no overflow
    if (memory_->Translate(d.addr, d.len, &chain->writable)) return true;
  } else {
    // Section 2.7.4.2: device-writable descriptors come after all device-readable ones.
    if (chain->writable_bytes > 0) return Fail("a readable descriptor behind a writable one");
    chain->readable_bytes += d.len;
    if (memory_->Translate(d.addr, d.len, &chain->readable)) return true;
  }
  return Fail(fmt::format("a descriptor outside guest memory: {:#x}+{:#x}", d.addr, d.len));
}

void Virtqueue::Push(uint16_t head, uint32_t written) {
  uint8_t* entry = used_ + kRingHeader + kUsedEntrySize * (next_used_ & (size_ - 1));
  const uint32_t fields[2] = {head, written};
  std::memcpy(entry, fields, sizeof(fields));
  ++next_used_;
  Store16(used_ + 2, next_used_, std::memory_order_release);
}

bool Virtqueue::Touched() const { return resolved() && (next_avail_ != 0 || AvailIndex() != 0); }

bool Virtqueue::ShouldNotify() {
  if (!resolved() || notified_used_ == next_used_) return false;
  // The used index must be visible before the driver's wish is read, or both sides may miss.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const uint16_t old = std::exchange(notified_used_, next_used_);
  if (!event_idx_) {
    return !(Load16(avail_, std::memory_order_relaxed) & kAvailNoInterrupt);
  }
  const uint16_t event = Load16(avail_ + kRingHeader + 2 * size_, std::memory_order_relaxed);
  // Section 2.7.7.2: notify if `event` lies in [old, next_used_), modulo 2^16.
  return static_cast<uint16_t>(next_used_ - event - 1) < static_cast<uint16_t>(next_used_ - old);
}

void Virtqueue::DisableKicks() {
  // With EVENT_IDX the driver kicks only when it passes avail_event, which then simply goes stale.
  if (resolved() && !event_idx_) Store16(used_, kUsedNoNotify, std::memory_order_relaxed);
}

bool Virtqueue::EnableKicks() {
  if (!resolved() || broken()) return false;
  if (event_idx_) {
    uint8_t* avail_event = used_ + kRingHeader + kUsedEntrySize * size_;
    Store16(avail_event, next_avail_, std::memory_order_relaxed);
  } else {
    Store16(used_, 0, std::memory_order_relaxed);
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return AvailIndex() != next_avail_;
}

}  // namespace smolvm::vsock
