// One-dimensional copies.
#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/transfer.h"

namespace smolvm::emulation {
namespace {

using PlaceFinder = CUresult (*)(CUdeviceptr, size_t, Place*);

CUresult HostEnd(CUdeviceptr address, size_t bytes, Place* place) {
  return HostPlace(reinterpret_cast<const void*>(address), bytes, place);
}
CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

// `to_end` and `from_end` say what kind of memory each address must be.
CUresult CopyLine(CUdeviceptr to, PlaceFinder to_end, CUdeviceptr from, PlaceFinder from_end,
                  size_t bytes, CUstream handle, Mode mode) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  if (bytes == 0) return CUDA_SUCCESS;
  Copy copy;
  SMOLVM_RETURN_IF_ERROR(to_end(to, bytes, &copy.to));
  SMOLVM_RETURN_IF_ERROR(from_end(from, bytes, &copy.from));
  copy.extent.width = bytes;
  return RunCopy(stream, std::move(copy), mode);
}

CUresult HtoD(CUdeviceptr to, const void* from, size_t bytes, CUstream stream, Mode mode) {
  return CopyLine(to, DevicePlace, Address(from), HostEnd, bytes, stream, mode);
}
CUresult DtoH(void* to, CUdeviceptr from, size_t bytes, CUstream stream, Mode mode) {
  return CopyLine(Address(to), HostEnd, from, DevicePlace, bytes, stream, mode);
}
CUresult DtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, Mode mode) {
  return CopyLine(to, DevicePlace, from, DevicePlace, bytes, stream, mode);
}
CUresult Unified(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream, Mode mode) {
  return CopyLine(to, UnifiedPlace, from, UnifiedPlace, bytes, stream, mode);
}

CUresult Peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
              size_t bytes, CUstream stream, Mode mode) {
  SMOLVM_ENTER();
  std::shared_ptr<Context> found;
  if (to_context == nullptr || from_context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  SMOLVM_RETURN_IF_ERROR(FindContext(to_context, &found));
  SMOLVM_RETURN_IF_ERROR(FindContext(from_context, &found));
  return DtoD(to, from, bytes, stream, mode);
}

constexpr Mode kSync = Mode::kSynchronous;
constexpr Mode kAsync = Mode::kAsynchronous;

}  // namespace

SMOLVM_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return HtoD(to, from, bytes, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t bytes) {
  return HtoD(to, from, bytes, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return HtoD(to, from, bytes, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t bytes,
                                     CUstream stream) {
  return HtoD(to, from, bytes, PerThread(stream), kAsync);
}

SMOLVM_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return DtoH(to, from, bytes, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t bytes) {
  return DtoH(to, from, bytes, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return DtoH(to, from, bytes, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return DtoH(to, from, bytes, PerThread(stream), kAsync);
}

SMOLVM_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return DtoD(to, from, bytes, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return DtoD(to, from, bytes, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return DtoD(to, from, bytes, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes,
                                     CUstream stream) {
  return DtoD(to, from, bytes, PerThread(stream), kAsync);
}

SMOLVM_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Unified(to, from, bytes, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return Unified(to, from, bytes, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Unified(to, from, bytes, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return Unified(to, from, bytes, PerThread(stream), kAsync);
}

SMOLVM_API cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                        CUcontext from_context, size_t bytes) {
  return Peer(to, to_context, from, from_context, bytes, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                             CUcontext from_context, size_t bytes) {
  return Peer(to, to_context, from, from_context, bytes, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                             CUcontext from_context, size_t bytes, CUstream stream) {
  return Peer(to, to_context, from, from_context, bytes, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                  CUcontext from_context, size_t bytes, CUstream stream) {
  return Peer(to, to_context, from, from_context, bytes, PerThread(stream), kAsync);
}

}  // namespace smolvm::emulation
