// The device memory that a session holds: which addresses it may name, and how much it may take.
//
// An address from the wire is checked here before the driver sees it: under unified addressing the
// driver takes host pointers too, and the worker's own memory is not the guest's.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "protocol/api/driver_table.h"

namespace smolvm::dispatch {

using Wide = unsigned __int128;

// Threads: every function may be called from any thread.
class MemoryTable {
 public:
  // `limit`: bytes that the session may hold; 0 = as much as the device has.
  MemoryTable(const driver::DriverTable& driver, uint64_t limit) : driver_(driver), limit_(limit) {}

  // Whether [address, address + extent) is device memory. An extent of 0 is for the driver to
  // judge.
  bool Allows(CUdeviceptr address, Wide extent) const;
  bool Fits(Wide bytes) const;
  // `owner`: the context that takes the memory along when it ends. False, and nothing is added,
  // when it is more than the session may hold.
  bool Add(CUdeviceptr address, uint64_t bytes, CUcontext owner);
  // The same for the variables of code, by the id of its module or library.
  bool AddCode(uint64_t id, uint64_t bytes, CUcontext owner);
  void RemoveCode(uint64_t id);
  bool limited() const { return limit_ != 0; }
  void Remove(CUdeviceptr address);
  void RemoveOwnedBy(CUcontext owner);
  // Lowers what the driver says to what the session may have.
  void Limit(size_t* free, size_t* total) const;

 private:
  const driver::DriverTable& driver_;
  const uint64_t limit_;
  mutable std::mutex mutex_;
  struct Block {
    uint64_t size = 0;
    CUcontext owner = nullptr;
  };
  bool FitsLocked(Wide bytes) const;
  template <typename Key>
  bool AddLocked(std::map<Key, Block>* blocks, Key key, uint64_t bytes, CUcontext owner);
  template <typename Key>
  void RemoveLocked(std::map<Key, Block>* blocks, Key key);
  template <typename Key>
  void RemoveOwnedLocked(std::map<Key, Block>* blocks, CUcontext owner);

  std::map<CUdeviceptr, Block> live_;
  std::map<uint64_t, Block> code_;
  uint64_t used_ = 0;
};

}  // namespace smolvm::dispatch
