// The emulation device's memory: one reserved range of addresses at kArenaBase.
//
//   kArenaBase                       kArenaBase + device_bytes            + kScratchBytes
//   | device memory (allocations)    | scratch: shared windows, thread stacks |
//
// Addresses in device memory are device pointers, and equal the worker's own addresses. A page of
// device memory that no allocation owns is PROT_NONE, so a stray access there faults; generated
// code checks that every address lies in [kArenaBase, end), so a kernel can reach nothing else in
// the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace smolvm::emulation {

// Free in plain, ASan, TSan and MSan builds, and below PIE images.
inline constexpr uintptr_t kArenaBase = 0x5500'0000'0000;
// Reserved (not committed) for the kernel runtime.
inline constexpr size_t kScratchBytes = size_t{64} << 30;
// cuMemAlloc's documented alignment is "suitable for any kind of variable"; the real driver gives
// 512-byte-aligned and we give at least as much as programs are known to rely on.
inline constexpr size_t kAllocationAlignment = 512;

struct Allocation {
  uintptr_t base;
  size_t size;  // as asked for
};

// Lifetime: one per process, made at cuInit and never destroyed (programs call the driver from
// atexit handlers). Threads: every function may be called from any thread.
class Arena {
 public:
  // Null when the address range is taken or memory is short. `device_bytes` is rounded up to pages.
  static Arena* Create(size_t device_bytes);

  uintptr_t base() const { return kArenaBase; }
  size_t device_bytes() const { return device_bytes_; }
  uintptr_t scratch_base() const { return kArenaBase + device_bytes_; }
  // Everything that generated code may touch.
  size_t reserved_bytes() const { return device_bytes_ + kScratchBytes; }

  // 0 when there is no room. `size` must not be 0. Contents are zero.
  uintptr_t Allocate(size_t size, size_t alignment = kAllocationAlignment);
  // False when `base` is not the start of an allocation.
  bool Free(uintptr_t base);
  // The allocation that holds `address`, if one does.
  std::optional<Allocation> Find(uintptr_t address) const;
  // Whether [address, address + size) lies in one allocation.
  bool Owns(uintptr_t address, size_t size) const;
  size_t free_bytes() const;

 private:
  explicit Arena(size_t device_bytes);
  // With mutex_ held: `bytes` (whole pages, for `size`) in the first hole that has room for them at
  // a multiple of `unit`; 0 when none has.
  uintptr_t Place(size_t size, size_t bytes, size_t unit);

  const size_t device_bytes_;
  mutable std::mutex mutex_;
  std::map<uintptr_t, size_t> live_;   // base → size as asked for
  std::map<uintptr_t, size_t> holes_;  // base → size, page-granular, coalesced
  size_t free_bytes_;
};

}  // namespace smolvm::emulation
