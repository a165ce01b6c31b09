// Managed memory beyond its allocation (memory_calls.cc). It is the host's own memory: nothing
// migrates, and the host may use it whenever the program knows that no kernel does.
#include "host-daemon/emulation/api/api.h"

namespace smolvm::emulation {
namespace {

// Which stream may use managed memory decides on a GPU when the host may; here it always may.
CUresult AttachMemory(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags) {
  SMOLVM_ENTER();
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE)
    return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  // Documented: the NULL stream takes memory for itself alone only by being named.
  if (flags == CU_MEM_ATTACH_SINGLE && stream->kind() == Stream::Kind::kLegacy)
    return CUDA_ERROR_INVALID_VALUE;
  const auto region = TheDriver().memory.Find(address);
  if (region == nullptr || !region->managed || region->base != address) {
    // Pageable memory may be attached where a device accesses it, which this one does not.
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Documented: 0, or the allocation's size.
  return bytes == 0 || bytes == region->size ? FaultOf(*stream) : CUDA_ERROR_INVALID_VALUE;
}

// Documented for a device whose CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0.
CUresult RefuseHint(CUdeviceptr address, size_t bytes) {
  SMOLVM_ENTER();
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(address);
  if (region == nullptr || !region->managed || !region->Holds(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

SMOLVM_API cuStreamAttachMemAsync(CUstream stream, CUdeviceptr address, size_t bytes,
                                  unsigned int flags) {
  return AttachMemory(Legacy(stream), address, bytes, flags);
}
SMOLVM_API cuStreamAttachMemAsync_ptsz(CUstream stream, CUdeviceptr address, size_t bytes,
                                       unsigned int flags) {
  return AttachMemory(PerThread(stream), address, bytes, flags);
}

SMOLVM_API cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice, CUstream) {
  return RefuseHint(address, bytes);
}
SMOLVM_API cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice, CUstream) {
  return RefuseHint(address, bytes);
}
SMOLVM_API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation, unsigned int,
                                 CUstream) {
  return RefuseHint(address, bytes);
}
SMOLVM_API cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation,
                                      unsigned int, CUstream) {
  return RefuseHint(address, bytes);
}
SMOLVM_API cuMemAdvise(CUdeviceptr address, size_t bytes, CUmem_advise, CUdevice) {
  return RefuseHint(address, bytes);
}
SMOLVM_API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise, CUmemLocation) {
  return RefuseHint(address, bytes);
}

}  // namespace smolvm::emulation
