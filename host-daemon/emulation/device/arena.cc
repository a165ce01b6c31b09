#include "host-daemon/emulation/device/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "host-daemon/emulation/device/address_space.h"
#include "host-daemon/limits/address_space.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

// Blocks up to this size are wiped by writing zeroes and keep their pages; larger ones are given
// back to the system. A first touch of a fresh page can cost as much as wiping eight of them.
constexpr size_t kKeepPagesBelow = size_t{256} << 10;
// Blocks that hold a huge page begin at one, where there is room: filling a fresh one costs about a
// fifth of filling as many small pages, and copies and kernels miss fewer translations.
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

Arena* Arena::Create(size_t device_bytes) {
  if (device_bytes == 0 || device_bytes > SIZE_MAX / 4) return nullptr;
  const size_t bytes = RoundUp(device_bytes, PageBytes());
  void* const wanted = reinterpret_cast<void*>(kArenaBase);
  void* got = mmap(wanted, bytes + kScratchBytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) {
    const int code = errno;
    const std::string denial =
        AddressSpaceDenial("the emulation device", AddressSpaceNeeded(device_bytes));
    log::Error("event=arena_failed bytes={} reason={}", bytes + kScratchBytes,
               log::Quote(denial.empty() ? strerror(code) : denial));
    return nullptr;
  }
  if (got != wanted) {  // a kernel older than 4.17 takes MAP_FIXED_NOREPLACE for a hint
    munmap(got, bytes + kScratchBytes);
    log::Error("event=arena_failed bytes={} reason=address-taken", bytes);
    return nullptr;
  }
  // Without huge pages first touches take longer, and nothing else changes.
  madvise(got, bytes, MADV_HUGEPAGE);
  return new Arena(bytes);
}

Arena::Arena(size_t device_bytes) : device_bytes_(device_bytes), free_bytes_(device_bytes) {
  holes_.emplace(kArenaBase, device_bytes);
}

uintptr_t Arena::Allocate(size_t size, size_t alignment) {
  if (size == 0 || size > device_bytes_ || alignment > device_bytes_) return 0;
  const size_t bytes = RoundUp(size, PageBytes());
  const size_t unit = RoundUp(alignment, PageBytes());
  std::lock_guard lock(mutex_);
  uintptr_t base = 0;
  if (bytes >= kHugePageBytes) base = Place(size, bytes, std::max(unit, kHugePageBytes));
  return base != 0 ? base : Place(size, bytes, unit);
}

uintptr_t Arena::Place(size_t size, size_t bytes, size_t unit) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const auto [start, room] = *hole;
    const uintptr_t base = RoundUp(start, unit);
    const size_t skipped = base - start;
    if (room < skipped || room - skipped < bytes) continue;
    if (mprotect(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE) != 0) {
      log::Error("event=arena_protect_failed reason={}", log::Quote(strerror(errno)));
      return 0;
    }
    holes_.erase(hole);
    if (skipped > 0) holes_.emplace(start, skipped);
    if (room - skipped > bytes) holes_.emplace(base + bytes, room - skipped - bytes);
    live_.emplace(base, size);
    free_bytes_ -= bytes;
    return base;
  }
  return 0;
}

bool Arena::Free(uintptr_t base) {
  std::lock_guard lock(mutex_);
  const auto found = live_.find(base);
  if (found == live_.end()) return false;
  size_t bytes = RoundUp(found->second, PageBytes());
  void* const block = reinterpret_cast<void*>(base);
  if (bytes <= kKeepPagesBelow) {
    std::memset(block, 0, bytes);
  } else {
    madvise(block, bytes, MADV_DONTNEED);  // cannot fail on memory of our own; reads as zero after
  }
  mprotect(block, bytes, PROT_NONE);
  live_.erase(found);
  free_bytes_ += bytes;

  auto next = holes_.lower_bound(base);
  if (next != holes_.end() && next->first == base + bytes) {
    bytes += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += bytes;
      return true;
    }
  }
  holes_.emplace(base, bytes);
  return true;
}

std::optional<Allocation> Arena::Find(uintptr_t address) const {
  std::lock_guard lock(mutex_);
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return std::nullopt;
  const auto& [base, size] = *--after;
  if (address - base >= size) return std::nullopt;
  return Allocation{base, size};
}

bool Arena::Owns(uintptr_t address, size_t size) const {
  const auto found = Find(address);
  return found && size <= found->size - (address - found->base);
}

size_t Arena::free_bytes() const {
  std::lock_guard lock(mutex_);
  return free_bytes_;
}

}  // namespace smolvm::emulation
