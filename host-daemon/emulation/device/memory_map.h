// What lies where: every range of memory that the driver API knows of, device and host.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>

namespace smolvm::emulation {

// A range of addresses, and what pointer attributes say of it.
//
// Lifetime: shared. Whoever reads or writes the range holds a reference meanwhile, so that a block
// freed by one thread stays mapped while another still copies; the memory goes back when the last
// reference goes.
struct Region {
  enum class Kind {
    kDevice,      // cuMemAlloc, cuMemAllocPitch
    kPool,        // cuMemAllocAsync
    kVariable,    // a module's __device__ or __constant__ variable
    kHost,        // cuMemHostAlloc
    kRegistered,  // cuMemHostRegister
  };

  Region(Kind kind, uintptr_t base, size_t size) : kind(kind), base(base), size(size) {}
  ~Region() {
    if (release) release();
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool IsDevice() const { return kind <= Kind::kVariable; }
  bool Holds(uintptr_t address, size_t bytes) const {
    return address >= base && address - base <= size && bytes <= size - (address - base);
  }

  const Kind kind;
  const uintptr_t base;
  const size_t size;
  uint64_t id = 0;              // CU_POINTER_ATTRIBUTE_BUFFER_ID; unique in the process
  uint64_t owner = 0;           // the id of the context that ends it; 0 = none
  CUcontext context = nullptr;  // that context's handle, for pointer attributes
  bool managed = false;         // cuMemAllocManaged, __managed__: the host uses it as well
  unsigned flags = 0;  // of host memory: as cuMemHostAlloc and cuMemHostRegister were asked
  std::atomic<bool> sync_memops{false};  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
  CUmemoryPool pool = nullptr;
  std::function<void()> release;  // gives the memory back
};

// Lifetime: one per process, never destroyed.
// Threads: every function may be called from any thread.
class MemoryMap {
 public:
  // False when the range overlaps one that is there.
  bool Add(std::shared_ptr<Region> region);
  // Takes the region that begins at `base` out. Null when there is none, or `accept` refuses it.
  std::shared_ptr<Region> Remove(uintptr_t base,
                                 const std::function<bool(const Region&)>& accept = nullptr);
  // Takes out all that `select` picks; their memory goes back, unless somebody still holds a
  // reference.
  void RemoveIf(const std::function<bool(const Region&)>& select);
  // The region that holds `address`.
  std::shared_ptr<Region> Find(uintptr_t address) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, std::shared_ptr<Region>> regions_;
};

}  // namespace smolvm::emulation
