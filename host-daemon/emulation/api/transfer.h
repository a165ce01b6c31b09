// Copies and fills: what they are checked for, and how they run on a stream.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>

#include "host-daemon/emulation/device/memory_map.h"
#include "host-daemon/emulation/device/stream.h"

namespace smolvm::emulation {

// One end of a transfer: memory that stays mapped as long as the Place lives.
struct Place {
  std::byte* at = nullptr;
  std::shared_ptr<Region> region;  // null: pageable host memory, which CUDA does not know

  bool Pageable() const { return region == nullptr; }
  bool SyncMemops() const { return region != nullptr && region->sync_memops; }
};

// Device memory that one allocation owns whole, else CUDA_ERROR_INVALID_VALUE.
CUresult DevicePlace(CUdeviceptr address, size_t bytes, Place* place);
// Host memory; an address in the device's range must be an allocation's.
CUresult HostPlace(const void* address, size_t bytes, Place* place);
// Either, told apart by the address.
inline CUresult UnifiedPlace(CUdeviceptr address, size_t bytes, Place* place) {
  return HostPlace(reinterpret_cast<const void*>(address), bytes, place);
}

// Rows of `width` bytes: `height` of them in each of `depth` slices, at the ends' own distances.
struct Extent {
  size_t width = 0;
  size_t height = 1;
  size_t depth = 1;
  bool Empty() const { return width == 0 || height == 0 || depth == 0; }
};
struct Distances {
  size_t row = 0;    // bytes from a row to the next
  size_t slice = 0;  // bytes from a slice to the next
};

struct Copy {
  Place to, from;
  Extent extent;
  Distances to_distances, from_distances;

  size_t Bytes() const { return extent.width * extent.height * extent.depth; }
  void Execute() const;
};

// Whether the host may go on before the transfer has happened.
enum class Mode { kSynchronous, kAsynchronous };

// Runs the copy on `stream`. Asynchronous copies from and to pageable memory are as CUDA documents
// them ("API synchronization behavior"): the source's bytes are taken, and the destination's are
// there, when the call returns.
CUresult RunCopy(const std::shared_ptr<Stream>& stream, Copy copy, Mode mode);

// Fills rows with a repeated element of 1, 2 or 4 bytes; extent.width counts bytes.
struct Fill {
  Place to;
  Extent extent;
  Distances distances;
  unsigned element = 0;
  unsigned element_bytes = 1;

  void Execute() const;
};
CUresult RunFill(const std::shared_ptr<Stream>& stream, Fill fill);

}  // namespace smolvm::emulation
