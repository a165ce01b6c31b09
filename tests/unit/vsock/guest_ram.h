// The guest's half, for tests: a memory file laid out as two regions, and the driver's side of a
// split virtqueue in it. Nothing here is bounded or checked: a test may write whatever it likes.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "host-daemon/vsock/guest_memory.h"
#include "host-daemon/vsock/virtqueue.h"

namespace smolvm::vsock {

// Two regions of one file, far apart in guest and in user addresses, as microvm sends them.
class GuestRam {
 public:
  static constexpr uint64_t kHalf = 8u << 20;
  static constexpr uint64_t kLowGuest = 0;
  static constexpr uint64_t kHighGuest = 0x1'0000'0000;
  static constexpr uint64_t kLowUser = 0x7f00'0000'0000;
  static constexpr uint64_t kHighUser = 0x7f10'0000'0000;

  GuestRam() {
    fd_ = memfd_create("guest-ram", MFD_CLOEXEC);
    if (fd_ < 0 || ftruncate(fd_, 2 * kHalf) != 0) abort();
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, 2 * kHalf, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0));
  }
  ~GuestRam() {
    munmap(base_, 2 * kHalf);
    close(fd_);
  }
  int fd() const { return fd_; }

  std::vector<MemoryRegion> Regions() const {
    std::vector<MemoryRegion> regions;
    regions.push_back({kLowGuest, kHalf, kLowUser, 0, UniqueFd(dup(fd_))});
    regions.push_back({kHighGuest, kHalf, kHighUser, kHalf, UniqueFd(dup(fd_))});
    return regions;
  }

  // Guest addresses, in the low or the high region.
  uint64_t Alloc(uint64_t size, uint64_t align = 16) { return Bump(&low_, kLowGuest, size, align); }
  uint64_t AllocHigh(uint64_t size, uint64_t align = 16) {
    return Bump(&high_, kHighGuest, size, align);
  }
  uint8_t* At(uint64_t guest) const {
    return guest >= kHighGuest ? base_ + kHalf + (guest - kHighGuest) : base_ + guest;
  }
  static uint64_t UserAddress(uint64_t guest) {
    return guest >= kHighGuest ? kHighUser + (guest - kHighGuest) : kLowUser + guest;
  }

 private:
  static uint64_t Bump(uint64_t* at, uint64_t base, uint64_t size, uint64_t align) {
    *at = (*at + align - 1) / align * align;
    const uint64_t result = base + *at;
    *at += size;
    if (*at > kHalf) abort();
    return result;
  }
  int fd_ = -1;
  uint8_t* base_ = nullptr;
  uint64_t low_ = 4096;
  uint64_t high_ = 0;
};

struct Buffer {
  uint64_t addr;
  uint32_t len;
  bool write = false;
};

constexpr uint16_t kNext = 1;
constexpr uint16_t kWrite = 2;
constexpr uint16_t kIndirect = 4;

// The driver's side of one queue.
class DriverRing {
 public:
  struct Desc {
    uint64_t addr;
    uint32_t len;
    uint16_t flags;
    uint16_t next;
  };

  DriverRing(GuestRam* ram, uint16_t size) : ram_(ram), size_(size) {
    desc_ = ram->Alloc(16u * size, 16);
    avail_ = ram->Alloc(6u + 2 * size, 2);
    used_ = ram->Alloc(6u + 8 * size, 4);
    Reset();
  }
  // As a driver does that starts anew.
  void Reset() {
    std::memset(ram_->At(desc_), 0, 16u * size_);
    std::memset(ram_->At(avail_), 0, 6u + 2 * size_);
    std::memset(ram_->At(used_), 0, 6u + 8 * size_);
    avail_idx_ = used_seen_ = kicked_ = 0;
    free_.clear();
    for (uint16_t i = 0; i < size_; ++i) free_.push_back(i);
    chains_.assign(size_, {});
  }

  uint16_t size() const { return size_; }
  uint64_t desc_addr() const { return desc_; }
  uint64_t avail_addr() const { return avail_; }
  uint64_t used_addr() const { return used_; }
  Desc* desc(uint16_t i) { return reinterpret_cast<Desc*>(ram_->At(desc_)) + i; }
  // 16-bit fields of the rings.
  uint16_t* avail_flags() { return Field(avail_, 0); }
  uint16_t* avail_idx() { return Field(avail_, 1); }
  uint16_t* avail_slot(uint16_t i) { return Field(avail_, 2u + i); }
  uint16_t* used_event() { return Field(avail_, 2u + size_); }
  uint16_t* used_flags() { return Field(used_, 0); }
  uint16_t* used_idx() { return Field(used_, 1); }
  uint16_t* avail_event() { return Field(used_, 2u + 4 * size_); }

  size_t FreeDescriptors() const { return free_.size(); }

  // Makes a chain of `buffers` available; its head. The caller knows that there is room.
  uint16_t Add(const std::vector<Buffer>& buffers) {
    std::vector<uint16_t> chain;
    for (size_t i = 0; i < buffers.size(); ++i) chain.push_back(TakeFree());
    for (size_t i = 0; i < buffers.size(); ++i) {
      const bool last = i + 1 == buffers.size();
      *desc(chain[i]) = {
          buffers[i].addr, buffers[i].len,
          static_cast<uint16_t>((buffers[i].write ? kWrite : 0) | (last ? 0 : kNext)),
          last ? uint16_t{0} : chain[i + 1]};
    }
    return Publish(chain);
  }
  // The same through an indirect table, which is `table` in guest memory.
  uint16_t AddIndirect(uint64_t table, const std::vector<Buffer>& buffers) {
    Desc* entries = reinterpret_cast<Desc*>(ram_->At(table));
    for (size_t i = 0; i < buffers.size(); ++i) {
      const bool last = i + 1 == buffers.size();
      entries[i] = {buffers[i].addr, buffers[i].len,
                    static_cast<uint16_t>((buffers[i].write ? kWrite : 0) | (last ? 0 : kNext)),
                    static_cast<uint16_t>(i + 1)};
    }
    const uint16_t head = TakeFree();
    *desc(head) = {table, static_cast<uint32_t>(16 * buffers.size()), kIndirect, 0};
    return Publish({head});
  }
  // Makes descriptor `head` available, however it looks.
  void AddRaw(uint16_t head) {
    *avail_slot(avail_idx_ & (size_ - 1)) = head;
    ++avail_idx_;
    std::atomic_ref<uint16_t>(*avail_idx()).store(avail_idx_, std::memory_order_release);
  }

  struct Used {
    uint32_t head;
    uint32_t len;
  };
  std::optional<Used> TakeUsed() {
    const uint16_t idx = std::atomic_ref<uint16_t>(*used_idx()).load(std::memory_order_acquire);
    if (idx == used_seen_) return std::nullopt;
    Used u;
    std::memcpy(&u, ram_->At(used_) + 4 + 8 * (used_seen_ & (size_ - 1)), sizeof(u));
    ++used_seen_;
    for (uint16_t d : chains_[u.head & (size_ - 1)]) free_.push_back(d);
    chains_[u.head & (size_ - 1)].clear();
    return u;
  }
  // Asks to be interrupted for the next used buffer (EVENT_IDX); true if one is there already.
  bool EnableInterrupts() {
    std::atomic_ref<uint16_t>(*used_event()).store(used_seen_, std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::atomic_ref<uint16_t>(*used_idx()).load() != used_seen_;
  }
  // Whether what was added since the last call needs a kick.
  bool NeedsKick(bool event_idx) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const uint16_t old = std::exchange(kicked_, avail_idx_);
    if (!event_idx) return !(std::atomic_ref<uint16_t>(*used_flags()).load() & 1);
    const uint16_t event = std::atomic_ref<uint16_t>(*avail_event()).load();
    return static_cast<uint16_t>(avail_idx_ - event - 1) < static_cast<uint16_t>(avail_idx_ - old);
  }

 private:
  uint16_t* Field(uint64_t ring, uint32_t index) {
    return reinterpret_cast<uint16_t*>(ram_->At(ring)) + index;
  }
  uint16_t TakeFree() {
    const uint16_t d = free_.front();
    free_.pop_front();
    return d;
  }
  uint16_t Publish(const std::vector<uint16_t>& chain) {
    chains_[chain[0]] = chain;
    AddRaw(chain[0]);
    return chain[0];
  }

  GuestRam* const ram_;
  const uint16_t size_;
  uint64_t desc_, avail_, used_;
  uint16_t avail_idx_ = 0;
  uint16_t used_seen_ = 0;
  uint16_t kicked_ = 0;
  std::deque<uint16_t> free_;
  std::vector<std::vector<uint16_t>> chains_;  // by head
};

}  // namespace smolvm::vsock
