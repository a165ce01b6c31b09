// Two- and three-dimensional copies. There are no arrays, so both ends are linear memory.
#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/transfer.h"

namespace smolvm::emulation {
namespace {

constexpr size_t kMaxPitch = 2147483647;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH

// One end, as the descriptors of all shapes give it.
struct End {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  size_t x, y, z, lod;
  size_t pitch;   // 0: not specified
  size_t height;  // rows from a slice to the next; 0: not specified
};

// What is not specified stands for packed rows and slices ("If specified, srcPitch must be …":
// cuMemcpy2D and cuMemcpy3D). A single row needs no pitch.
End Completed(End end, const Extent& extent) {
  if (end.pitch == 0 && (extent.height > 1 || extent.depth > 1)) end.pitch = extent.width;
  if (end.height == 0) end.height = extent.height;
  return end;
}

// The address of the first byte, the distances, and the check that all rows lie in memory that may
// be used.
CUresult Resolve(const End& given, const Extent& extent, Place* place, Distances* distances) {
  const End end = Completed(given, extent);
  if (end.type == CU_MEMORYTYPE_ARRAY) return CUDA_ERROR_NOT_SUPPORTED;
  if (end.lod != 0 || end.pitch > kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
  const bool rows = extent.height > 1 || extent.depth > 1 || end.y > 0 || end.z > 0;
  if ((rows || end.pitch != 0) && (end.x > end.pitch || extent.width > end.pitch - end.x))
    return CUDA_ERROR_INVALID_VALUE;
  const bool slices = extent.depth > 1 || end.z > 0;
  if (slices && (end.y > end.height || extent.height > end.height - end.y))
    return CUDA_ERROR_INVALID_VALUE;
  distances->row = end.pitch;
  size_t start = 0, span = 0, part = 0;
  bool overflow = __builtin_mul_overflow(end.pitch, end.height, &distances->slice);
  overflow |= __builtin_mul_overflow(distances->slice, end.z, &start);
  overflow |= __builtin_mul_overflow(end.pitch, end.y, &part);
  overflow |= __builtin_add_overflow(start, part, &start);
  overflow |= __builtin_add_overflow(start, end.x, &start);
  overflow |= __builtin_mul_overflow(distances->slice, extent.depth - 1, &span);
  overflow |= __builtin_mul_overflow(end.pitch, extent.height - 1, &part);
  overflow |= __builtin_add_overflow(span, part, &span);
  overflow |= __builtin_add_overflow(span, extent.width, &span);
  if (overflow) return CUDA_ERROR_INVALID_VALUE;
  switch (end.type) {
    case CU_MEMORYTYPE_HOST:
      if (end.host == nullptr) return CUDA_ERROR_INVALID_VALUE;
      return HostPlace(static_cast<const std::byte*>(end.host) + start, span, place);
    case CU_MEMORYTYPE_DEVICE:
      return DevicePlace(end.device + start, span, place);
    case CU_MEMORYTYPE_UNIFIED:
      return UnifiedPlace(end.device + start, span, place);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult CopyBox(const End& to, const End& from, const Extent& extent, CUstream handle, Mode mode) {
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  if (extent.Empty()) return CUDA_SUCCESS;
  Copy copy;
  copy.extent = extent;
  SMOLVM_RETURN_IF_ERROR(Resolve(to, extent, &copy.to, &copy.to_distances));
  SMOLVM_RETURN_IF_ERROR(Resolve(from, extent, &copy.from, &copy.from_distances));
  return RunCopy(stream, std::move(copy), mode);
}

CUresult Copy2D(const CUDA_MEMCPY2D* p, CUstream stream, Mode mode) {
  SMOLVM_ENTER();
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const End to = {p->dstMemoryType, p->dstHost, p->dstDevice, p->dstXInBytes, p->dstY, 0, 0,
                  p->dstPitch,      p->Height};
  const End from = {p->srcMemoryType, p->srcHost, p->srcDevice, p->srcXInBytes, p->srcY, 0, 0,
                    p->srcPitch,      p->Height};
  return CopyBox(to, from, {p->WidthInBytes, p->Height, 1}, stream, mode);
}

template <typename Descriptor>
CUresult Copy3D(const Descriptor& p, CUstream stream, Mode mode) {
  const End to = {p.dstMemoryType, p.dstHost, p.dstDevice, p.dstXInBytes, p.dstY,
                  p.dstZ,          p.dstLOD,  p.dstPitch,  p.dstHeight};
  const End from = {p.srcMemoryType, p.srcHost, p.srcDevice, p.srcXInBytes, p.srcY,
                    p.srcZ,          p.srcLOD,  p.srcPitch,  p.srcHeight};
  return CopyBox(to, from, {p.WidthInBytes, p.Height, p.Depth}, stream, mode);
}

CUresult Plain3D(const CUDA_MEMCPY3D* p, CUstream stream, Mode mode) {
  SMOLVM_ENTER();
  if (p == nullptr || p->reserved0 != nullptr || p->reserved1 != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  return Copy3D(*p, stream, mode);
}

CUresult Peer3D(const CUDA_MEMCPY3D_PEER* p, CUstream stream, Mode mode) {
  SMOLVM_ENTER();
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> found;
  if (p->dstContext != nullptr) SMOLVM_RETURN_IF_ERROR(FindContext(p->dstContext, &found));
  if (p->srcContext != nullptr) SMOLVM_RETURN_IF_ERROR(FindContext(p->srcContext, &found));
  return Copy3D(*p, stream, mode);
}

constexpr Mode kSync = Mode::kSynchronous;
constexpr Mode kAsync = Mode::kAsynchronous;

}  // namespace

SMOLVM_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2D(copy, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2D(copy, PerThread(stream), kAsync);
}

SMOLVM_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return Plain3D(copy, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* copy) {
  return Plain3D(copy, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Plain3D(copy, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Plain3D(copy, PerThread(stream), kAsync);
}

SMOLVM_API cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  return Peer3D(copy, CU_STREAM_LEGACY, kSync);
}
SMOLVM_API cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* copy) {
  return Peer3D(copy, CU_STREAM_PER_THREAD, kSync);
}
SMOLVM_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return Peer3D(copy, Legacy(stream), kAsync);
}
SMOLVM_API cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return Peer3D(copy, PerThread(stream), kAsync);
}

}  // namespace smolvm::emulation
