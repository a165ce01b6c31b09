#include "guest-shim/libcuda/state/pinned.h"

#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace smolvm::guest {
bool IsMapped(const void* p, size_t size) {
  if (size > UINTPTR_MAX - reinterpret_cast<uintptr_t>(p)) return false;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(p) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(p) + size;
  // msync fails with ENOMEM when a page of the range is not mapped; MS_ASYNC starts nothing.
  return msync(reinterpret_cast<void*>(begin), end - begin, MS_ASYNC) == 0;
}

void* PinnedMemory::Allocate(size_t size, unsigned flags, CUcontext context, CUdevice device) {
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  // Large pages are filled and copied faster; without them nothing else changes.
  madvise(data, size, MADV_HUGEPAGE);
  const std::unique_lock lock(mutex_);
  blocks_[static_cast<char*>(data)] = {
      static_cast<char*>(data), size, flags, false, context, device};
  return data;
}

CUresult PinnedMemory::Register(void* p, size_t size, unsigned flags, CUcontext context,
                                CUdevice device) {
  auto* begin = static_cast<char*>(p);
  if (!IsMapped(begin, size)) return CUDA_ERROR_INVALID_VALUE;
  const std::unique_lock lock(mutex_);
  auto next = blocks_.lower_bound(begin);
  const bool into_next = next != blocks_.end() && next->first < begin + size;
  const bool from_previous = next != blocks_.begin() &&
                             std::prev(next)->second.base + std::prev(next)->second.size > begin;
  if (into_next || from_previous) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  blocks_[begin] = {begin, size, flags, true, context, device};
  return CUDA_SUCCESS;
}

bool PinnedMemory::Free(void* p) {
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(p));
  if (found == blocks_.end() || found->second.registered) return false;
  munmap(p, found->second.size);
  blocks_.erase(found);
  return true;
}

bool PinnedMemory::Unregister(void* p) {
  const std::unique_lock lock(mutex_);
  const auto found = blocks_.find(static_cast<char*>(p));
  if (found == blocks_.end() || !found->second.registered) return false;
  blocks_.erase(found);
  return true;
}

void PinnedMemory::EndWith(CUcontext context, const std::function<bool(const PinnedBlock&)>& busy) {
  const std::unique_lock lock(mutex_);
  std::erase_if(blocks_, [&](const auto& entry) {
    const PinnedBlock& block = entry.second;
    if (block.context != context) return false;
    if (!block.registered && !busy(block)) munmap(block.base, block.size);
    return true;
  });
}

std::optional<PinnedBlock> PinnedMemory::Find(const void* p) const {
  const std::shared_lock lock(mutex_);
  auto next = blocks_.upper_bound(const_cast<char*>(static_cast<const char*>(p)));
  if (next == blocks_.begin()) return std::nullopt;
  const PinnedBlock& block = (--next)->second;
  if (static_cast<const char*>(p) >= block.base + block.size) return std::nullopt;
  return block;
}

}  // namespace smolvm::guest
