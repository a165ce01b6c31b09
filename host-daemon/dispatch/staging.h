// Page-locked buffers of the worker, through which bytes pass between the connection and the
// device.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "protocol/api/driver_table.h"

namespace smolvm::dispatch {

// The piece in which copies that the caller waits for are moved: fits the second-level cache, so
// that a byte's second copy costs little.
inline constexpr size_t kPieceBytes = 256 * 1024;

class Staging;

// A buffer on loan; goes back when destroyed.
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(Staging* pool, void* data, size_t size) : pool_(pool), data_(data), size_(size) {}
  StagingBuffer(StagingBuffer&& other) noexcept { *this = std::move(other); }
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();
  char* data() const { return static_cast<char*>(data_); }
  size_t size() const { return size_; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  Staging* pool_ = nullptr;
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Threads: every function may be called from any thread; a context must be current where memory is
// taken.
class Staging {
 public:
  // What one session may have on loan at once, and what is kept for reuse.
  static constexpr size_t kMaxOnLoan = size_t{1} << 30;
  static constexpr size_t kMaxKept = size_t{64} << 20;

  explicit Staging(const driver::DriverTable& driver) : driver_(driver) {}

  // Empty when the session has too much on loan, or there is no memory.
  StagingBuffer Take(size_t size);

 private:
  friend class StagingBuffer;
  void GiveBack(void* data, size_t size);

  const driver::DriverTable& driver_;
  std::mutex mutex_;
  struct Kept {
    void* data;
    size_t size;
  };
  std::vector<Kept> kept_;
  size_t kept_bytes_ = 0;
  size_t on_loan_ = 0;
};

}  // namespace smolvm::dispatch
