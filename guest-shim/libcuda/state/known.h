// What the guest knows for certain, so that it can let a call go without waiting: which handles
// live, which device memory is allocated. What is not known here is no error: such a call is sent
// and waited for.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_set>

namespace smolvm::guest {

using Wide = unsigned __int128;

enum class Kind : uint8_t {
  kContext = 1,
  kStream,
  kEvent,
  kModule,
  kFunction,
  kLibrary,
  kKernel,
  kMemPool,
  kLink
};

// Threads: every function may be called from any thread.
class KnownHandles {
 public:
  void Add(uint64_t id);
  void Remove(uint64_t id);
  bool Has(uint64_t id) const;
  void Clear();

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_set<uint64_t> live_;
};

// Device memory, and the guest's own address ranges that are kept free for it: an address is either
// the host's or the program's, never both. Threads: every function may be called from any thread.
class DeviceMemory {
 public:
  // False when the program has memory of its own at these addresses.
  bool Reserve(CUdeviceptr address, uint64_t size);
  void Add(CUdeviceptr address, uint64_t size);
  void Remove(CUdeviceptr address);
  void Clear();
  bool Holds(CUdeviceptr address, Wide extent) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<CUdeviceptr, uint64_t> live_;
  // Reserved granules; kept as long as the process.
  std::unordered_set<uint64_t> reserved_;
};

}  // namespace smolvm::guest
