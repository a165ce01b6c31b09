#include "host-daemon/emulation/runtime/code_region.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>

#include "host-daemon/emulation/runtime/sanitizer_fibre.h"

namespace smolvm::emulation {
namespace {

constexpr size_t kPage = 4096;
std::atomic<uintptr_t> g_base{0};

size_t Round(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

CodeRegion& CodeRegion::Get() {
  static auto* region = new CodeRegion;
  return *region;
}

CodeRegion::CodeRegion() {
  const char* reserved = getenv(kCodeAtVariable);
  void* base = reserved != nullptr ? reinterpret_cast<void*>(strtoull(reserved, nullptr, 16))
                                   : mmap(nullptr, kBytes, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return;
  g_base.store(reinterpret_cast<uintptr_t>(base));
  holes_[reinterpret_cast<uintptr_t>(base)] = kBytes;
}

void* CodeRegion::Take(size_t bytes) {
  const size_t size = Round(bytes);
  std::lock_guard lock(mutex_);
  for (auto it = holes_.begin(); it != holes_.end(); ++it) {
    if (it->second < size) continue;
    const uintptr_t address = it->first;
    if (mprotect(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE) != 0)
      return nullptr;
    const size_t rest = it->second - size;
    holes_.erase(it);
    if (rest != 0) holes_[address + size] = rest;
    return reinterpret_cast<void*>(address);
  }
  return nullptr;
}

void CodeRegion::Put(void* address, size_t bytes) {
  auto base = reinterpret_cast<uintptr_t>(address);
  size_t size = Round(bytes);
  madvise(address, size, MADV_DONTNEED);
  mprotect(address, size, PROT_NONE);
  std::lock_guard lock(mutex_);
  auto next = holes_.lower_bound(base);
  if (next != holes_.end() && base + size == next->first) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += size;
      return;
    }
  }
  holes_[base] = size;
}

SMOLVM_NOT_INSTRUMENTED bool CodeRegion::Holds(const void* address) {
  const uintptr_t base = g_base.load(std::memory_order_relaxed);
  return base != 0 && reinterpret_cast<uintptr_t>(address) - base < kBytes;
}

}  // namespace smolvm::emulation
