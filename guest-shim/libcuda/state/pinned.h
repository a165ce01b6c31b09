// Page-locked host memory. Without a window that both sides map it is ordinary memory of the
// program; the table knows it, so that copies behave as copies of pinned memory do and questions
// about it are answered.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>

namespace smolvm::guest {

struct PinnedBlock {
  char* base;
  size_t size;
  unsigned flags;     // CU_MEMHOSTALLOC_… or CU_MEMHOSTREGISTER_…
  bool registered;    // the program's own memory
  CUcontext context;  // current when it was made
  CUdevice device;
};

// Whether [p, p + size) is memory of this process, readable or not.
bool IsMapped(const void* p, size_t size);

// Threads: every function may be called from any thread.
class PinnedMemory {
 public:
  // Null when the system has no memory.
  void* Allocate(size_t size, unsigned flags, CUcontext context, CUdevice device);
  CUresult Register(void* p, size_t size, unsigned flags, CUcontext context, CUdevice device);
  // Forgets a block that begins at `p`, and unmaps it if it was allocated here.
  bool Free(void* p);
  bool Unregister(void* p);
  // What belonged to a context is page-locked no longer when that has ended. `busy`: a block that
  // something may still be written to is forgotten and stays mapped.
  void EndWith(CUcontext context, const std::function<bool(const PinnedBlock&)>& busy);
  std::optional<PinnedBlock> Find(const void* p) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<char*, PinnedBlock> blocks_;
};

}  // namespace smolvm::guest
