#include "guest-shim/libcuda/state/known.h"

#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

namespace smolvm::guest {
namespace {

constexpr uint64_t kGranule = uint64_t{2} << 20;

// Makes sure that nothing of the program's is ever mapped there. Kernels before 4.17 take the
// address as a hint, so the result is looked at.
bool ReserveRange(uint64_t begin, uint64_t size) {
  void* wanted = reinterpret_cast<void*>(begin);
  void* got = mmap(wanted, size, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == wanted) return true;
  munmap(got, size);
  return false;
}

}  // namespace

void KnownHandles::Add(uint64_t id) {
  const std::unique_lock lock(mutex_);
  live_.insert(id);
}

void KnownHandles::Remove(uint64_t id) {
  const std::unique_lock lock(mutex_);
  live_.erase(id);
}

bool KnownHandles::Has(uint64_t id) const {
  const std::shared_lock lock(mutex_);
  return live_.contains(id);
}

void KnownHandles::Clear() {
  const std::unique_lock lock(mutex_);
  live_.clear();
}

bool DeviceMemory::Reserve(CUdeviceptr address, uint64_t size) {
  const std::unique_lock lock(mutex_);
  const uint64_t end = (address + size + kGranule - 1) / kGranule * kGranule;
  for (uint64_t at = address / kGranule * kGranule; at < end;) {
    if (reserved_.contains(at)) {
      at += kGranule;
      continue;
    }
    uint64_t run = at;
    while (run < end && !reserved_.contains(run)) run += kGranule;
    if (!ReserveRange(at, run - at)) return false;
    for (; at < run; at += kGranule) reserved_.insert(at);
  }
  return true;
}

void DeviceMemory::Add(CUdeviceptr address, uint64_t size) {
  const std::unique_lock lock(mutex_);
  live_[address] = size;
}

void DeviceMemory::Remove(CUdeviceptr address) {
  const std::unique_lock lock(mutex_);
  live_.erase(address);
}

void DeviceMemory::Clear() {
  const std::unique_lock lock(mutex_);
  live_.clear();
}

bool DeviceMemory::Holds(CUdeviceptr address, Wide extent) const {
  const std::shared_lock lock(mutex_);
  auto next = live_.upper_bound(address);
  if (next == live_.begin()) return false;
  const auto& [base, size] = *--next;
  return address - base < size && extent <= size - (address - base);
}

}  // namespace smolvm::guest
