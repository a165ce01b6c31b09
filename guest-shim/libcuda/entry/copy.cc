// Copies. The bytes of a copy to the device have been taken when the call returns, so only what the
// guest cannot check is waited for; a copy back waits, unless it is an asynchronous one to
// page-locked memory.
#include <climits>
#include <vector>

#include "guest-shim/libcuda/client/callbacks.h"
#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/copy.wire.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/stream.wire.h"

namespace smolvm::guest {
namespace {

// Larger copies back are waited for: the host would have to hold all their bytes.
constexpr size_t kMaxDeferredCopyBack = size_t{256} << 20;

iovec Part(const void* data, size_t size) { return {const_cast<void*>(data), size}; }

CUresult SynchroniseStream(CUstream stream, uint32_t variant) {
  api::None none;
  return Ask(api::id::cuStreamSynchronize, variant,
             api::StreamSynchronizeRequest{reinterpret_cast<uint64_t>(stream)}, &none);
}

// The bytes of page-locked memory may still change in stream order: a host function of the stream,
// or a copy back that has not arrived, writes them. Then the copy's turn has to come before its
// bytes are taken.
CUresult WaitForSource(const void* source, size_t size, CUstream stream, uint32_t variant) {
  Session& session = TheSession();
  const bool changes = session.callbacks().outstanding() > 0 && session.pinned().Find(source);
  if (!changes && !session.connection().CopyBackPending(source, size)) return CUDA_SUCCESS;
  return SynchroniseStream(stream, variant);
}

enum class Place { kHost, kDevice };

// Where a unified address leads. Memory that CUDA does not know is the program's own.
CUresult PlaceOf(CUdeviceptr address, Place* place) {
  *place = Place::kHost;
  if (TheSession().memory().Holds(address, 1)) *place = Place::kDevice;
  if (*place == Place::kDevice || TheSession().pinned().Find(reinterpret_cast<void*>(address)))
    return CUDA_SUCCESS;
  unsigned type = 0;
  const CUresult result =
      manual::cuPointerGetAttribute(kNoVariant, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  if (result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE) *place = Place::kDevice;
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

// Whether the kernel can take the bytes from there. When it finds out in the middle of a frame, the
// connection is lost; a short copy from nowhere faults in the program, as it does with the driver.
bool CanSend(const void* source, size_t size) {
  constexpr size_t kAskFrom = 4096;
  if (size >= kAskFrom) return IsMapped(source, size);
  const volatile char* bytes = static_cast<const char*>(source);
  static_cast<void>(bytes[0]);
  static_cast<void>(bytes[size - 1]);
  return true;
}

template <typename Request>
CUresult ToDevice(uint32_t call_id, uint32_t variant, const Request& request, const void* source,
                  bool known) {
  if (!CanSend(source, request.ByteCount)) return CUDA_ERROR_INVALID_VALUE;
  const iovec part = Part(source, request.ByteCount);
  if (known && ContextProved()) return Post(call_id, variant, request, Bulk(&part, 1));
  api::None none;
  const CUresult result = Ask(call_id, variant, request, &none, Bulk(&part, 1));
  if (result == CUDA_SUCCESS) ProveContext();
  return result;
}

// Asks and receives the bytes straight into the program's memory.
template <typename Request>
CUresult ToHost(uint32_t call_id, uint32_t variant, const Request& request, void* to) {
  Reply reply;
  reply.sink = static_cast<char*>(to);
  reply.sink_size = request.ByteCount;
  const CUresult result = Exchange(call_id, variant, EncodeArgs(request), {}, &reply);
  if (result != CUDA_SUCCESS) return result;
  ProveContext();
  return reply.received == request.ByteCount ? CUDA_SUCCESS : BadReply();
}

CUresult DeviceToDevice(uint32_t variant, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                        const CUstream* stream) {
  const bool known = KnownMemory(dst, bytes) && KnownMemory(src, bytes) && ContextProved();
  api::None none;
  if (stream) {
    const api::MemcpyDtoDAsyncV2Request request{dst, src, bytes,
                                                reinterpret_cast<uint64_t>(*stream)};
    if (known && KnownStream(*stream)) return Post(api::id::cuMemcpyDtoDAsync_v2, variant, request);
    return Ask(api::id::cuMemcpyDtoDAsync_v2, variant, request, &none);
  }
  const api::MemcpyDtoDV2Request request{dst, src, bytes};
  if (known) return Post(api::id::cuMemcpyDtoD_v2, variant, request);
  return Ask(api::id::cuMemcpyDtoD_v2, variant, request, &none);
}

// A copy between two places of the program's own, in stream order.
CUresult HostToHost(void* dst, const void* src, size_t bytes, CUstream stream, uint32_t variant) {
  if (const CUresult result = SynchroniseStream(stream, variant)) return result;
  memmove(dst, src, bytes);
  return CUDA_SUCCESS;
}

CUresult UnifiedCopy(uint32_t variant, CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                     const CUstream* stream) {
  if (bytes == 0) return RequireContext();
  Place to, from;
  if (const CUresult result = PlaceOf(dst, &to)) return result;
  if (const CUresult result = PlaceOf(src, &from)) return result;
  void* host_dst = reinterpret_cast<void*>(dst);
  const void* host_src = reinterpret_cast<const void*>(src);
  if (to == Place::kDevice && from == Place::kDevice)
    return DeviceToDevice(variant, dst, src, bytes, stream);
  if (to == Place::kDevice) {
    return stream ? manual::cuMemcpyHtoDAsync_v2(variant, dst, host_src, bytes, *stream)
                  : manual::cuMemcpyHtoD_v2(variant, dst, host_src, bytes);
  }
  if (from == Place::kDevice) {
    return stream ? manual::cuMemcpyDtoHAsync_v2(variant, host_dst, src, bytes, *stream)
                  : manual::cuMemcpyDtoH_v2(variant, host_dst, src, bytes);
  }
  return HostToHost(host_dst, host_src, bytes, stream ? *stream : nullptr, variant);
}

// ---- Two and three dimensions: one form on the wire, whose host side travels as packed rows.

// The rows of a copy's host side, each where it lies.
struct HostRows {
  char* base;
  size_t pitch, slice;
  char* Row(size_t y, size_t z) const { return base + z * slice + y * pitch; }
};

// The first byte of the box on one side, from the side's base, and how far from it the last one
// ends. False when rows or slices would overlap, or addresses wrap around.
struct Box {
  size_t x, y, z, pitch, height;
  size_t start = 0, span = 0;

  bool Measure(size_t width, size_t rows, size_t depth) {
    const bool slices = depth > 1 || z > 0;
    if ((rows > 1 || y > 0 || slices || pitch != 0) && (x > pitch || width > pitch - x))
      return false;
    if (slices && (y > height || rows > height - y)) return false;
    const auto end = static_cast<unsigned __int128>(pitch) * height;
    if (end > SIZE_MAX / 2) return false;
    const unsigned __int128 first = end * z + static_cast<unsigned __int128>(pitch) * y + x;
    const unsigned __int128 whole =
        end * (depth - 1) + static_cast<unsigned __int128>(pitch) * (rows - 1) + width;
    if (first > SIZE_MAX / 4 || whole > SIZE_MAX / 4) return false;
    start = static_cast<size_t>(first);
    span = static_cast<size_t>(whole);
    return true;
  }
};

HostRows RowsAt(const void* host, const Box& box) {
  return {static_cast<char*>(const_cast<void*>(host)) + box.start, box.pitch,
          box.pitch * box.height};
}

CUresult ResolveUnified(CUmemorytype* type, CUdeviceptr device, const void** host) {
  if (*type != CU_MEMORYTYPE_UNIFIED) return CUDA_SUCCESS;
  Place place;
  if (const CUresult result = PlaceOf(device, &place)) return result;
  *type = place == Place::kDevice ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  if (place == Place::kHost) *host = reinterpret_cast<const void*>(device);
  return CUDA_SUCCESS;
}

CUresult Transfer(uint32_t variant, const CUDA_MEMCPY3D& copy, const CUstream* stream, Bulk bulk,
                  Reply* reply) {
  std::string description(reinterpret_cast<const char*>(&copy), sizeof copy);
  if (stream) {
    const api::Memcpy3DAsyncV2Request request{reinterpret_cast<uint64_t>(*stream),
                                              std::move(description)};
    return Exchange(api::id::cuMemcpy3DAsync_v2, variant, EncodeArgs(request), bulk, reply);
  }
  return Exchange(api::id::cuMemcpy3D_v2, variant,
                  EncodeArgs(api::Memcpy3DV2Request{std::move(description)}), bulk, reply);
}

// What is not specified stands for packed rows and slices ("If specified, srcPitch must be …":
// cuMemcpy2D and cuMemcpy3D). A single row needs no pitch.
void Complete(const CUDA_MEMCPY3D& copy, size_t* pitch, size_t* height) {
  if (*pitch == 0 && (copy.Height > 1 || copy.Depth > 1)) *pitch = copy.WidthInBytes;
  if (*height == 0) *height = copy.Height;
}

CUresult Copy3D(uint32_t variant, CUDA_MEMCPY3D copy, const CUstream* stream) {
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY || copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const void* dst_host = copy.dstHost;
  if (const CUresult result = ResolveUnified(&copy.srcMemoryType, copy.srcDevice, &copy.srcHost))
    return result;
  if (const CUresult result = ResolveUnified(&copy.dstMemoryType, copy.dstDevice, &dst_host))
    return result;
  const bool from_host = copy.srcMemoryType == CU_MEMORYTYPE_HOST,
             to_host = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  if ((from_host && !copy.srcHost) || (to_host && !dst_host)) return CUDA_ERROR_INVALID_VALUE;
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return RequireContext();
  Complete(copy, &copy.srcPitch, &copy.srcHeight);
  Complete(copy, &copy.dstPitch, &copy.dstHeight);
  Box from{copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcPitch, copy.srcHeight};
  Box to{copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstPitch, copy.dstHeight};
  if (!from.Measure(copy.WidthInBytes, copy.Height, copy.Depth) ||
      !to.Measure(copy.WidthInBytes, copy.Height, copy.Depth)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const HostRows source = RowsAt(copy.srcHost, from), target = RowsAt(dst_host, to);
  if (from_host && !CanSend(source.base, from.span)) return CUDA_ERROR_INVALID_VALUE;
  const auto each_row = [&](auto&& row) {
    for (size_t z = 0; z < copy.Depth; ++z) {
      for (size_t y = 0; y < copy.Height; ++y) row(y, z);
    }
  };
  if (from_host && to_host) {
    if (const CUresult result = SynchroniseStream(stream ? *stream : nullptr, variant))
      return result;
    each_row([&](size_t y, size_t z) {
      memmove(target.Row(y, z), source.Row(y, z), copy.WidthInBytes);
    });
    return CUDA_SUCCESS;
  }
  // No address of this process crosses the wire.
  copy.srcHost = nullptr;
  copy.dstHost = nullptr;
  if (from_host) copy.srcDevice = 0;
  if (to_host) copy.dstDevice = 0;
  const unsigned __int128 total =
      static_cast<unsigned __int128>(copy.WidthInBytes) * copy.Height * copy.Depth;
  if (total > SIZE_MAX / 2) return CUDA_ERROR_INVALID_VALUE;
  std::vector<iovec> parts;
  std::vector<char> packed;
  Reply reply;
  if (from_host)
    each_row(
        [&](size_t y, size_t z) { parts.push_back(Part(source.Row(y, z), copy.WidthInBytes)); });
  if (to_host) {
    packed.resize(static_cast<size_t>(total));
    reply.sink = packed.data();
    reply.sink_size = packed.size();
  }
  if (const CUresult result = Transfer(variant, copy, stream, parts, &reply)) return result;
  if (!to_host) return CUDA_SUCCESS;
  if (reply.received != packed.size()) return BadReply();
  const char* row_data = packed.data();
  each_row([&](size_t y, size_t z) {
    memcpy(target.Row(y, z), row_data, copy.WidthInBytes);
    row_data += copy.WidthInBytes;
  });
  return CUDA_SUCCESS;
}

CUDA_MEMCPY3D As3D(const CUDA_MEMCPY2D& flat) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = flat.srcXInBytes, copy.srcY = flat.srcY;
  copy.srcMemoryType = flat.srcMemoryType, copy.srcHost = flat.srcHost;
  copy.srcDevice = flat.srcDevice, copy.srcArray = flat.srcArray;
  copy.srcPitch = flat.srcPitch, copy.srcHeight = flat.srcY + flat.Height;
  copy.dstXInBytes = flat.dstXInBytes, copy.dstY = flat.dstY;
  copy.dstMemoryType = flat.dstMemoryType, copy.dstHost = flat.dstHost;
  copy.dstDevice = flat.dstDevice, copy.dstArray = flat.dstArray;
  copy.dstPitch = flat.dstPitch, copy.dstHeight = flat.dstY + flat.Height;
  copy.WidthInBytes = flat.WidthInBytes, copy.Height = flat.Height, copy.Depth = 1;
  return copy;
}

CUDA_MEMCPY3D As3D(const CUDA_MEMCPY3D_PEER& peer) {
  CUDA_MEMCPY3D copy{};
  copy.srcXInBytes = peer.srcXInBytes, copy.srcY = peer.srcY, copy.srcZ = peer.srcZ;
  copy.srcMemoryType = peer.srcMemoryType, copy.srcHost = peer.srcHost;
  copy.srcDevice = peer.srcDevice, copy.srcArray = peer.srcArray;
  copy.srcPitch = peer.srcPitch, copy.srcHeight = peer.srcHeight;
  copy.dstXInBytes = peer.dstXInBytes, copy.dstY = peer.dstY, copy.dstZ = peer.dstZ;
  copy.dstMemoryType = peer.dstMemoryType, copy.dstHost = peer.dstHost;
  copy.dstDevice = peer.dstDevice, copy.dstArray = peer.dstArray;
  copy.dstPitch = peer.dstPitch, copy.dstHeight = peer.dstHeight;
  copy.WidthInBytes = peer.WidthInBytes, copy.Height = peer.Height, copy.Depth = peer.Depth;
  return copy;
}

}  // namespace

namespace manual {

CUresult cuMemcpyHtoD_v2(uint32_t variant, CUdeviceptr dstDevice, const void* srcHost,
                         size_t ByteCount) {
  if (ByteCount == 0) return RequireContext();
  if (!srcHost) return CUDA_ERROR_INVALID_VALUE;
  if (TheSession().connection().CopyBackPending(srcHost, ByteCount)) {
    if (const CUresult result = SynchroniseStream(nullptr, variant)) return result;
  }
  return ToDevice(api::id::cuMemcpyHtoD_v2, variant, api::MemcpyHtoDV2Request{dstDevice, ByteCount},
                  srcHost, KnownMemory(dstDevice, ByteCount));
}

CUresult cuMemcpyHtoDAsync_v2(uint32_t variant, CUdeviceptr dstDevice, const void* srcHost,
                              size_t ByteCount, CUstream hStream) {
  if (ByteCount == 0) return RequireContext();
  if (!srcHost) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = WaitForSource(srcHost, ByteCount, hStream, variant)) return result;
  const api::MemcpyHtoDAsyncV2Request request{dstDevice, ByteCount,
                                              reinterpret_cast<uint64_t>(hStream)};
  return ToDevice(api::id::cuMemcpyHtoDAsync_v2, variant, request, srcHost,
                  KnownMemory(dstDevice, ByteCount) && KnownStream(hStream));
}

CUresult cuMemcpyDtoH_v2(uint32_t variant, void* dstHost, CUdeviceptr srcDevice, size_t ByteCount) {
  if (ByteCount == 0) return RequireContext();
  if (!dstHost) return CUDA_ERROR_INVALID_VALUE;
  return ToHost(api::id::cuMemcpyDtoH_v2, variant, api::MemcpyDtoHV2Request{srcDevice, ByteCount},
                dstHost);
}

CUresult cuMemcpyDtoHAsync_v2(uint32_t variant, void* dstHost, CUdeviceptr srcDevice,
                              size_t ByteCount, CUstream hStream) {
  if (ByteCount == 0) return RequireContext();
  if (!dstHost) return CUDA_ERROR_INVALID_VALUE;
  api::MemcpyDtoHAsyncV2Request request{srcDevice, ByteCount, reinterpret_cast<uint64_t>(hStream),
                                        0};
  const auto block = TheSession().pinned().Find(dstHost);
  const bool pinned = block && ByteCount <= static_cast<size_t>(block->base + block->size -
                                                                static_cast<char*>(dstHost));
  if (!pinned || ByteCount > kMaxDeferredCopyBack || !ContextProved() || !KnownStream(hStream) ||
      !KnownMemory(srcDevice, ByteCount)) {
    return ToHost(api::id::cuMemcpyDtoHAsync_v2, variant, request, dstHost);
  }
  Connection& connection = TheSession().connection();
  request.copy_id = connection.ExpectCopyBack(dstHost, ByteCount);
  const CUresult result = Post(api::id::cuMemcpyDtoHAsync_v2, variant, request);
  if (result != CUDA_SUCCESS) connection.ForgetCopyBack(request.copy_id);
  return result;
}

CUresult cuMemcpy(uint32_t variant, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount) {
  return UnifiedCopy(variant, dst, src, ByteCount, nullptr);
}

CUresult cuMemcpyAsync(uint32_t variant, CUdeviceptr dst, CUdeviceptr src, size_t ByteCount,
                       CUstream hStream) {
  return UnifiedCopy(variant, dst, src, ByteCount, &hStream);
}

CUresult cuMemcpy2D_v2(uint32_t variant, const CUDA_MEMCPY2D* pCopy) {
  return pCopy ? Copy3D(variant, As3D(*pCopy), nullptr) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy2DUnaligned_v2(uint32_t variant, const CUDA_MEMCPY2D* pCopy) {
  return cuMemcpy2D_v2(variant, pCopy);
}

CUresult cuMemcpy2DAsync_v2(uint32_t variant, const CUDA_MEMCPY2D* pCopy, CUstream hStream) {
  return pCopy ? Copy3D(variant, As3D(*pCopy), &hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3D_v2(uint32_t variant, const CUDA_MEMCPY3D* pCopy) {
  return pCopy ? Copy3D(variant, *pCopy, nullptr) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DAsync_v2(uint32_t variant, const CUDA_MEMCPY3D* pCopy, CUstream hStream) {
  return pCopy ? Copy3D(variant, *pCopy, &hStream) : CUDA_ERROR_INVALID_VALUE;
}

// With one address space for all devices the contexts say nothing that the addresses do not.
CUresult cuMemcpy3DPeer(uint32_t variant, const CUDA_MEMCPY3D_PEER* pCopy) {
  return pCopy ? Copy3D(variant, As3D(*pCopy), nullptr) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemcpy3DPeerAsync(uint32_t variant, const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  return pCopy ? Copy3D(variant, As3D(*pCopy), &hStream) : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace manual
}  // namespace smolvm::guest
