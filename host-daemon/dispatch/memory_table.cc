#include "host-daemon/dispatch/memory_table.h"

#include <algorithm>

namespace smolvm::dispatch {

bool MemoryTable::Allows(CUdeviceptr address, Wide extent) const {
  if (extent == 0) return true;
  if (extent > UINT64_MAX) return false;
  {
    const std::lock_guard lock(mutex_);
    auto next = live_.upper_bound(address);
    if (next != live_.begin()) {
      const auto& [base, block] = *--next;
      const uint64_t size = block.size;
      if (address - base < size && extent <= size - (address - base)) return true;
    }
  }
  // Module variables.
  CUmemorytype type{};
  if (!driver_.cuPointerGetAttribute ||
      driver_.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
          CUDA_SUCCESS ||
      type != CU_MEMORYTYPE_DEVICE) {
    return false;
  }
  CUdeviceptr base = 0;
  size_t size = 0;
  if (driver_.cuMemGetAddressRange_v2(&base, &size, address) != CUDA_SUCCESS) return false;
  return address >= base && address - base < size && extent <= size - (address - base);
}

bool MemoryTable::Fits(uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  return limit_ == 0 || (used_ <= limit_ && bytes <= limit_ - used_);
}

void MemoryTable::Add(CUdeviceptr address, uint64_t bytes, CUcontext owner) {
  const std::lock_guard lock(mutex_);
  Block& block = live_[address];
  used_ += bytes - block.size;
  block = {bytes, owner};
}

void MemoryTable::Remove(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  const auto found = live_.find(address);
  if (found == live_.end()) return;
  used_ -= found->second.size;
  live_.erase(found);
}

void MemoryTable::RemoveOwnedBy(CUcontext owner) {
  const std::lock_guard lock(mutex_);
  for (auto block = live_.begin(); block != live_.end();) {
    if (block->second.owner != owner) {
      ++block;
      continue;
    }
    used_ -= block->second.size;
    block = live_.erase(block);
  }
}

void MemoryTable::Limit(size_t* free, size_t* total) const {
  if (limit_ == 0) return;
  const std::lock_guard lock(mutex_);
  *total = std::min<uint64_t>(*total, limit_);
  *free = std::min<uint64_t>(*free, used_ < limit_ ? limit_ - used_ : 0);
}

}  // namespace smolvm::dispatch
