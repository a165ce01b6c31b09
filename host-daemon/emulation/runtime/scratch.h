// Memory in the arena's scratch region, where generated code may reach it: shared windows, local
// memory, parameters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation {

// Lifetime: as long as the arena. Threads: any.
class Scratch {
 public:
  explicit Scratch(Arena& arena);

  // Readable and writable memory, page-aligned; its contents are whatever an earlier launch left. 0
  // when short.
  uintptr_t Take(size_t bytes);
  void Put(uintptr_t address, size_t bytes);

  // The scratch allocator of an arena, made at the first call.
  static Scratch& Of(Arena& arena);

  // What a piece for `bytes` takes.
  static size_t ClassOf(size_t bytes);

 private:
  struct FreePiece {
    uintptr_t address;
    bool is_resident;  // has pages
  };

  const uintptr_t end_;
  std::mutex mutex_;
  uintptr_t next_;
  std::map<size_t, std::vector<FreePiece>> free_;  // by rounded size
  size_t resident_ = 0;                            // bytes of free pieces that have pages
};

// A piece of scratch memory, given back when it goes out of scope.
class ScratchPiece {
 public:
  ScratchPiece() = default;
  ScratchPiece(Scratch& scratch, size_t bytes)
      : scratch_(&scratch), bytes_(bytes), address_(scratch.Take(bytes)) {}
  ScratchPiece(const ScratchPiece&) = delete;
  ScratchPiece& operator=(const ScratchPiece&) = delete;
  ~ScratchPiece() { Release(); }

  // False when memory is short. What was held before is given back first, unless it is large
  // enough.
  bool Reserve(Scratch& scratch, size_t bytes) {
    if (address_ != 0 && bytes_ >= bytes && scratch_ == &scratch) return true;
    Release();
    scratch_ = &scratch;
    bytes_ = bytes;
    address_ = scratch.Take(bytes);
    return address_ != 0;
  }
  void Release() {
    if (address_ != 0) scratch_->Put(address_, bytes_);
    address_ = 0;
  }
  uintptr_t address() const { return address_; }

 private:
  Scratch* scratch_ = nullptr;
  size_t bytes_ = 0;
  uintptr_t address_ = 0;
};

}  // namespace smolvm::emulation
