#include "host-daemon/emulation/runtime/stack_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "host-daemon/emulation/device/kernel_memory.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102  // Linux 6.13: a guard that does not split the mapping
#endif

namespace smolvm::emulation {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLine = 64;
// Without MADV_GUARD_INSTALL each stack costs two mappings, and Linux allows 65,530 a process by
// default.
constexpr size_t kMaxStacks = 24 << 10;

// What a thread touches of its stack, as it is counted; they are never given back.
constexpr size_t kTouchedBytes = 16 << 10;

bool Guard(char* address, size_t size) {
  if (madvise(address, size, MADV_GUARD_INSTALL) == 0) return true;
  return mprotect(address, size, PROT_NONE) == 0;
}

}  // namespace

StackPool::StackPool(size_t stack_bytes)
    : stack_bytes_((stack_bytes + kPage - 1) / kPage * kPage) {}

bool StackPool::Grow(size_t count) {
  if (made_ + count > kMaxStacks || !KernelMemory::Get().Take(count * kTouchedBytes)) return false;
  // An odd number of pages between stacks spreads their tops over the cache's sets.
  const size_t stride = (kGuardBytes + stack_bytes_ + kPage) | kPage;
  const size_t bytes = stride * count;
  void* block = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (block == MAP_FAILED) {
    KernelMemory::Get().Give(count * kTouchedBytes);
    return false;
  }
  for (size_t i = 0; i < count; ++i) {
    Stack stack;
    stack.guard = static_cast<char*>(block) + i * stride;
    if (!Guard(stack.guard, kGuardBytes)) {
      munmap(block, bytes);
      free_.resize(free_.size() - i);
      KernelMemory::Get().Give(count * kTouchedBytes);
      return false;
    }
    stack.bottom = stack.guard + kGuardBytes;
    stack.top = stack.guard + stride - ((made_ + i) % (kPage / kLine)) * kLine;
    free_.push_back(stack);
  }
  made_ += count;
  return true;
}

bool StackPool::Take(size_t count, std::vector<Stack>* stacks) {
  std::lock_guard lock(mutex_);
  if (free_.size() < count && !Grow(std::max<size_t>(count - free_.size(), 32))) {
    if (free_.size() < count && !Grow(count - free_.size())) return false;
  }
  stacks->insert(stacks->end(), free_.end() - count, free_.end());
  free_.resize(free_.size() - count);
  return true;
}

void StackPool::Put(std::vector<Stack>* stacks) {
  std::lock_guard lock(mutex_);
  free_.insert(free_.end(), stacks->begin(), stacks->end());
  stacks->clear();
}

StackPool& StackPool::ForSize(size_t stack_bytes) {
  // Size classes: 64 KiB, 128 KiB … 64 MiB.
  constexpr size_t kSmallest = 64 << 10;
  constexpr int kClasses = 11;
  static StackPool* pools[kClasses];
  static std::once_flag once;
  std::call_once(once, [] {
    for (int i = 0; i < kClasses; ++i) pools[i] = new StackPool(kSmallest << i);
  });
  const size_t wanted = std::bit_ceil(std::max(stack_bytes, kSmallest));
  const int index = std::countr_zero(wanted) - std::countr_zero(kSmallest);
  return *pools[std::min(index, kClasses - 1)];
}

}  // namespace smolvm::emulation
