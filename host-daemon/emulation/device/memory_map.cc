#include "host-daemon/emulation/device/memory_map.h"

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace smolvm::emulation {

bool MemoryMap::Add(std::shared_ptr<Region> region) {
  static std::atomic<uint64_t> next_id{1};
  region->id = next_id.fetch_add(1, std::memory_order_relaxed);
  std::unique_lock lock(mutex_);
  const auto next = regions_.lower_bound(region->base);
  if (next != regions_.end() && next->first - region->base < region->size) return false;
  if (next != regions_.begin()) {
    const Region& before = *std::prev(next)->second;
    if (region->base - before.base < before.size) return false;
  }
  regions_.emplace_hint(next, region->base, std::move(region));
  return true;
}

std::shared_ptr<Region> MemoryMap::Remove(uintptr_t base,
                                          const std::function<bool(const Region&)>& accept) {
  std::unique_lock lock(mutex_);
  const auto found = regions_.find(base);
  if (found == regions_.end() || (accept && !accept(*found->second))) return nullptr;
  std::shared_ptr<Region> region = std::move(found->second);
  regions_.erase(found);
  return region;
}

void MemoryMap::RemoveIf(const std::function<bool(const Region&)>& select) {
  std::vector<std::shared_ptr<Region>> removed;  // let go of outside the lock
  std::unique_lock lock(mutex_);
  for (auto it = regions_.begin(); it != regions_.end();) {
    if (!select(*it->second)) {
      ++it;
      continue;
    }
    removed.push_back(std::move(it->second));
    it = regions_.erase(it);
  }
  lock.unlock();
}

std::shared_ptr<Region> MemoryMap::Find(uintptr_t address) const {
  std::shared_lock lock(mutex_);
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const std::shared_ptr<Region>& region = std::prev(after)->second;
  return address - region->base < region->size ? region : nullptr;
}

}  // namespace smolvm::emulation
