// Fills.
#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/transfer.h"

namespace smolvm::emulation {
namespace {

CUresult FillRows(CUdeviceptr to, size_t pitch, unsigned element, unsigned element_bytes,
                  size_t width, size_t height, CUstream handle) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  if (width == 0 || height == 0) return CUDA_SUCCESS;
  if (to % element_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  Fill fill;
  size_t span = 0;
  if (__builtin_mul_overflow(width, size_t{element_bytes}, &fill.extent.width))
    return CUDA_ERROR_INVALID_VALUE;
  if (height > 1 && (pitch < fill.extent.width || pitch % element_bytes != 0))
    return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_mul_overflow(pitch, height - 1, &span) ||
      __builtin_add_overflow(span, fill.extent.width, &span))
    return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(DevicePlace(to, span, &fill.to));
  fill.extent.height = height;
  fill.distances.row = pitch;
  fill.element = element;
  fill.element_bytes = element_bytes;
  return RunFill(stream, std::move(fill));
}

}  // namespace

SMOLVM_API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return FillRows(to, 0, value, 1, count, 1, CU_STREAM_LEGACY);
}
SMOLVM_API cuMemsetD8_v2_ptds(CUdeviceptr to, unsigned char value, size_t count) {
  return FillRows(to, 0, value, 1, count, 1, CU_STREAM_PER_THREAD);
}
SMOLVM_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return FillRows(to, 0, value, 1, count, 1, Legacy(stream));
}
SMOLVM_API cuMemsetD8Async_ptsz(CUdeviceptr to, unsigned char value, size_t count,
                                CUstream stream) {
  return FillRows(to, 0, value, 1, count, 1, PerThread(stream));
}

SMOLVM_API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return FillRows(to, 0, value, 2, count, 1, CU_STREAM_LEGACY);
}
SMOLVM_API cuMemsetD16_v2_ptds(CUdeviceptr to, unsigned short value, size_t count) {
  return FillRows(to, 0, value, 2, count, 1, CU_STREAM_PER_THREAD);
}
SMOLVM_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return FillRows(to, 0, value, 2, count, 1, Legacy(stream));
}
SMOLVM_API cuMemsetD16Async_ptsz(CUdeviceptr to, unsigned short value, size_t count,
                                 CUstream stream) {
  return FillRows(to, 0, value, 2, count, 1, PerThread(stream));
}

SMOLVM_API cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count) {
  return FillRows(to, 0, value, 4, count, 1, CU_STREAM_LEGACY);
}
SMOLVM_API cuMemsetD32_v2_ptds(CUdeviceptr to, unsigned int value, size_t count) {
  return FillRows(to, 0, value, 4, count, 1, CU_STREAM_PER_THREAD);
}
SMOLVM_API cuMemsetD32Async(CUdeviceptr to, unsigned int value, size_t count, CUstream stream) {
  return FillRows(to, 0, value, 4, count, 1, Legacy(stream));
}
SMOLVM_API cuMemsetD32Async_ptsz(CUdeviceptr to, unsigned int value, size_t count,
                                 CUstream stream) {
  return FillRows(to, 0, value, 4, count, 1, PerThread(stream));
}

SMOLVM_API cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                           size_t height) {
  return FillRows(to, pitch, value, 1, width, height, CU_STREAM_LEGACY);
}
SMOLVM_API cuMemsetD2D8_v2_ptds(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                size_t height) {
  return FillRows(to, pitch, value, 1, width, height, CU_STREAM_PER_THREAD);
}
SMOLVM_API cuMemsetD2D8Async(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                             size_t height, CUstream stream) {
  return FillRows(to, pitch, value, 1, width, height, Legacy(stream));
}
SMOLVM_API cuMemsetD2D8Async_ptsz(CUdeviceptr to, size_t pitch, unsigned char value, size_t width,
                                  size_t height, CUstream stream) {
  return FillRows(to, pitch, value, 1, width, height, PerThread(stream));
}

SMOLVM_API cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                            size_t height) {
  return FillRows(to, pitch, value, 2, width, height, CU_STREAM_LEGACY);
}
SMOLVM_API cuMemsetD2D16_v2_ptds(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                 size_t height) {
  return FillRows(to, pitch, value, 2, width, height, CU_STREAM_PER_THREAD);
}
SMOLVM_API cuMemsetD2D16Async(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                              size_t height, CUstream stream) {
  return FillRows(to, pitch, value, 2, width, height, Legacy(stream));
}
SMOLVM_API cuMemsetD2D16Async_ptsz(CUdeviceptr to, size_t pitch, unsigned short value, size_t width,
                                   size_t height, CUstream stream) {
  return FillRows(to, pitch, value, 2, width, height, PerThread(stream));
}

SMOLVM_API cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                            size_t height) {
  return FillRows(to, pitch, value, 4, width, height, CU_STREAM_LEGACY);
}
SMOLVM_API cuMemsetD2D32_v2_ptds(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                                 size_t height) {
  return FillRows(to, pitch, value, 4, width, height, CU_STREAM_PER_THREAD);
}
SMOLVM_API cuMemsetD2D32Async(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                              size_t height, CUstream stream) {
  return FillRows(to, pitch, value, 4, width, height, Legacy(stream));
}
SMOLVM_API cuMemsetD2D32Async_ptsz(CUdeviceptr to, size_t pitch, unsigned int value, size_t width,
                                   size_t height, CUstream stream) {
  return FillRows(to, pitch, value, 4, width, height, PerThread(stream));
}

}  // namespace smolvm::emulation
