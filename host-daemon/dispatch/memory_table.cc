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

bool MemoryTable::FitsLocked(Wide bytes) const {
  return limit_ == 0 || (used_ <= limit_ && bytes <= limit_ - used_);
}

bool MemoryTable::Fits(Wide bytes) const {
  const std::lock_guard lock(mutex_);
  return FitsLocked(bytes);
}

template <typename Key>
bool MemoryTable::AddLocked(std::map<Key, Block>* blocks, Key key, uint64_t bytes,
                            CUcontext owner) {
  // The driver has freed what was there without our being told.
  RemoveLocked(blocks, key);
  if (!FitsLocked(bytes)) return false;
  (*blocks)[key] = {bytes, owner};
  used_ += bytes;
  return true;
}

template <typename Key>
void MemoryTable::RemoveLocked(std::map<Key, Block>* blocks, Key key) {
  const auto found = blocks->find(key);
  if (found == blocks->end()) return;
  used_ -= found->second.size;
  blocks->erase(found);
}

template <typename Key>
void MemoryTable::RemoveOwnedLocked(std::map<Key, Block>* blocks, CUcontext owner) {
  std::erase_if(*blocks, [&](const auto& block) {
    if (block.second.owner != owner) return false;
    used_ -= block.second.size;
    return true;
  });
}

bool MemoryTable::Add(CUdeviceptr address, uint64_t bytes, CUcontext owner) {
  const std::lock_guard lock(mutex_);
  return AddLocked(&live_, address, bytes, owner);
}

bool MemoryTable::AddCode(uint64_t id, uint64_t bytes, CUcontext owner) {
  const std::lock_guard lock(mutex_);
  return AddLocked(&code_, id, bytes, owner);
}

void MemoryTable::Remove(CUdeviceptr address) {
  const std::lock_guard lock(mutex_);
  RemoveLocked(&live_, address);
}

void MemoryTable::RemoveCode(uint64_t id) {
  const std::lock_guard lock(mutex_);
  RemoveLocked(&code_, id);
}

void MemoryTable::RemoveOwnedBy(CUcontext owner) {
  const std::lock_guard lock(mutex_);
  RemoveOwnedLocked(&live_, owner);
  RemoveOwnedLocked(&code_, owner);
}

void MemoryTable::Limit(size_t* free, size_t* total) const {
  if (limit_ == 0) return;
  const std::lock_guard lock(mutex_);
  *total = std::min<uint64_t>(*total, limit_);
  *free = std::min<uint64_t>(*free, used_ < limit_ ? limit_ - used_ : 0);
}

}  // namespace smolvm::dispatch
