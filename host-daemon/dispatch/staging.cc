#include "host-daemon/dispatch/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <iterator>

namespace smolvm::dispatch {

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (data_) pool_->GiveBack(data_, size_);
}

StagingBuffer Staging::Take(size_t size) {
  // Powers of two, so that buffers fit one another.
  size = std::bit_ceil(std::max(size, kPieceBytes));
  {
    const std::lock_guard lock(mutex_);
    if (size > kMaxOnLoan - on_loan_) return {};
    on_loan_ += size;
    // The latest: its bytes are in the processor's cache.
    const auto fits = std::find_if(kept_.rbegin(), kept_.rend(),
                                   [&](const Kept& kept) { return kept.size == size; });
    if (fits != kept_.rend()) {
      void* data = fits->data;
      kept_.erase(std::next(fits).base());
      kept_bytes_ -= size;
      return {this, data, size};
    }
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data != MAP_FAILED) {
    // Large pages are filled faster; without them nothing else changes.
    madvise(data, size, MADV_HUGEPAGE);
    // Without it copies are slower, and no less right.
    if (driver_.cuMemHostRegister_v2) {
      driver_.cuMemHostRegister_v2(data, size, CU_MEMHOSTREGISTER_PORTABLE);
    }
    return {this, data, size};
  }
  const std::lock_guard lock(mutex_);
  on_loan_ -= size;
  return {};
}

void Staging::GiveBack(void* data, size_t size) {
  {
    const std::lock_guard lock(mutex_);
    on_loan_ -= size;
    if (kept_bytes_ + size <= kMaxKept) {
      kept_.push_back({data, size});
      kept_bytes_ += size;
      return;
    }
  }
  if (driver_.cuMemHostUnregister) driver_.cuMemHostUnregister(data);
  munmap(data, size);
}

}  // namespace smolvm::dispatch
