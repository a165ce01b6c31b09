#include "host-daemon/emulation/runtime/heap.h"

#include <iterator>

namespace smolvm::emulation {
namespace {
constexpr size_t kUnit = 16;
}

bool DeviceHeap::SetLimit(size_t bytes) {
  std::lock_guard lock(mutex_);
  if (base_ != 0) return bytes == limit_;
  limit_ = bytes;
  return true;
}

size_t DeviceHeap::limit() {
  std::lock_guard lock(mutex_);
  return limit_;
}

uintptr_t DeviceHeap::Allocate(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (bytes == 0 || bytes > limit_) return 0;
  if (base_ == 0) {
    base_ = arena_.Allocate(limit_);
    if (base_ == 0) return 0;
    holes_[base_] = limit_;
  }
  const size_t size = (bytes + kUnit - 1) / kUnit * kUnit;
  for (auto it = holes_.begin(); it != holes_.end(); ++it) {
    if (it->second < size) continue;
    const uintptr_t address = it->first;
    const size_t rest = it->second - size;
    holes_.erase(it);
    if (rest != 0) holes_[address + size] = rest;
    live_[address] = size;
    return address;
  }
  return 0;
}

bool DeviceHeap::Free(uintptr_t address) {
  std::lock_guard lock(mutex_);
  const auto block = live_.find(address);
  if (block == live_.end()) return false;
  uintptr_t base = block->first;
  size_t size = block->second;
  live_.erase(block);
  auto next = holes_.lower_bound(base);
  if (next != holes_.end() && base + size == next->first) {
    size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += size;
      return true;
    }
  }
  holes_[base] = size;
  return true;
}

DeviceHeap& DeviceHeap::Of(Arena& arena) {
  static std::mutex mutex;
  static auto* all = new std::map<Arena*, DeviceHeap*>;
  std::lock_guard lock(mutex);
  DeviceHeap*& heap = (*all)[&arena];
  if (heap == nullptr) heap = new DeviceHeap(arena);
  return *heap;
}

}  // namespace smolvm::emulation
