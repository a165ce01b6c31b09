#include "host-daemon/emulation/runtime/scratch.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace smolvm::emulation {

Scratch::Scratch(Arena& arena)
    : end_(arena.base() + arena.reserved_bytes()), next_(arena.scratch_base()) {}

size_t Scratch::ClassOf(size_t bytes) { return std::bit_ceil(std::max<size_t>(bytes, 16 << 10)); }

uintptr_t Scratch::Take(size_t bytes) {
  if (bytes > kScratchBytes) return 0;
  const size_t size = ClassOf(bytes);
  std::lock_guard lock(mutex_);
  if (auto& list = free_[size]; !list.empty()) {
    const FreePiece piece = list.back();
    list.pop_back();
    if (piece.is_resident) resident_ -= size;
    return piece.address;
  }
  // A page between pieces stays inaccessible, so that running off one faults; it also spreads
  // windows over the cache's sets.
  constexpr size_t kGap = 4096;
  if (end_ - next_ < size + kGap) return 0;
  if (mprotect(reinterpret_cast<void*>(next_), size, PROT_READ | PROT_WRITE) != 0) return 0;
  const uintptr_t address = next_;
  next_ += size + kGap;
  return address;
}

void Scratch::Put(uintptr_t address, size_t bytes) {
  // Large pieces, and those beyond so many bytes, give their pages back; the range stays ours.
  constexpr size_t kKeep = 4 << 20, kKeepInAll = 64 << 20;
  const size_t size = ClassOf(bytes);
  std::lock_guard lock(mutex_);
  const bool keeps = size <= kKeep && resident_ + size <= kKeepInAll;
  if (!keeps) madvise(reinterpret_cast<void*>(address), size, MADV_DONTNEED);
  if (keeps) resident_ += size;
  free_[size].push_back({address, keeps});
}

Scratch& Scratch::Of(Arena& arena) {
  static std::mutex mutex;
  static auto* all = new std::map<Arena*, Scratch*>;
  std::lock_guard lock(mutex);
  Scratch*& scratch = (*all)[&arena];
  if (scratch == nullptr) scratch = new Scratch(arena);
  return *scratch;
}

}  // namespace smolvm::emulation
