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
  bool Fits(uint64_t bytes) const;
  // `owner`: the context that takes the memory along when it ends.
  void Add(CUdeviceptr address, uint64_t bytes, CUcontext owner);
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
  std::map<CUdeviceptr, Block> live_;
  uint64_t used_ = 0;
};

}  // namespace smolvm::dispatch
