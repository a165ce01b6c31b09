// Copies between the connection and the device. Bytes move in pieces through page-locked buffers;
// what is allocated grows with the bytes that have arrived, never with a number on the wire.
#include <algorithm>
#include <cstring>

#include "host-daemon/dispatch/copy_extent.h"
#include "host-daemon/dispatch/dispatcher.h"
#include "protocol/api/host_manual.h"

namespace smolvm::dispatch {
namespace {

constexpr uint32_t kGone = CUDA_ERROR_UNKNOWN;  // the guest is gone: nobody reads the result
// A copy that cannot wait in line as a whole (its stream is busy and it is larger than this) is
// waited for.
constexpr uint64_t kMaxQueuedCopy = uint64_t{256} << 20;
// The driver's own piece of a copy whose other bytes are addressed: enough for it to say what is
// wrong, and too little for its second copy to be seen in what a copy of a mebibyte takes.
constexpr uint64_t kAskingPieceBytes = 4096;

// The bulk of a request must be what the call says it copies.
bool BulkFits(const session::Call& call, uint64_t bytes) { return call.bulk_left() == bytes; }

// The variant of an entry point that fits the call's default stream.
template <typename Entry>
Entry Variant(const session::Call& call, Entry plain, Entry per_thread) {
  return call.per_thread_stream() ? per_thread : plain;
}

// Copies one piece, and returns when it is there. The default stream has a synchronous copy, which
// takes fewer hand-overs between threads than an asynchronous one that is waited for.
template <typename Now, typename Queued, typename... Args>
CUresult CopyPiece(Dispatcher& d, const session::Call& call, CUstream stream, Now now,
                   Queued queued, Args... args) {
  if (now && !stream) return now(args...);
  const CUresult result = queued(args..., stream);
  return result ? result : d.SynchronizeStream(call, stream);
}

// Calls `copy` for each piece of the request's bulk, after it was read into `piece`. After an error
// the rest is left to the session to skip.
template <typename Copy>
uint32_t InPieces(session::Call& call, char* piece, size_t piece_bytes, Copy copy) {
  uint64_t offset = 0;
  while (call.bulk_left() > 0) {
    const size_t size = std::min<uint64_t>(call.bulk_left(), piece_bytes);
    if (!call.ReadBulk(piece, size)) return kGone;
    if (const CUresult result = copy(offset, size)) return result;
    offset += size;
  }
  return CUDA_SUCCESS;
}

// The device memory itself, where this process can address it: the connection then reads it and
// writes to it with no buffer between. Only behind a piece that the driver copied: that one waited
// for the work before it, and says what is wrong. Null where it is not one allocation.
char* Addressable(Dispatcher& d, CUdeviceptr at, uint64_t bytes) {
  CUdeviceptr base = 0;
  size_t size = 0;
  if (!d.device_memory_is_addressable() || bytes == 0 ||
      d.driver().cuMemGetAddressRange_v2(&base, &size, at) != CUDA_SUCCESS || at < base ||
      at - base >= size || bytes > size - (at - base)) {
    return nullptr;
  }
  return reinterpret_cast<char*>(at);
}

// How many bytes pass through a buffer at once.
size_t PieceBytes(const Dispatcher& d) {
  return d.device_memory_is_addressable() ? kAskingPieceBytes : kPieceBytes;
}

// Behind unfinished work: the bytes wait in a buffer of their own, so that the connection does not.
uint32_t QueueToDevice(Dispatcher& d, session::Call& call, CUdeviceptr to, CUstream stream) {
  const size_t size = call.bulk_left();
  StagingBuffer buffer = d.staging().Take(size);
  if (!buffer) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!call.ReadBulk(buffer.data(), size)) return kGone;
  const auto copy =
      Variant(call, d.driver().cuMemcpyHtoDAsync_v2, d.driver().cuMemcpyHtoDAsync_v2_ptsz);
  if (!copy) return d.NotInDriver("cuMemcpyHtoDAsync_v2");
  if (const CUresult result = copy(to, buffer.data(), size, stream)) return result;
  CUevent done = nullptr;
  if (const CUresult result = d.driver().cuEventCreate(&done, CU_EVENT_DISABLE_TIMING)) {
    d.SynchronizeStream(call, stream);
    return result;
  }
  if (const CUresult result = d.RecordEvent(call, done, stream)) return result;
  d.copies_back().AddHeld(std::move(buffer), done);
  return CUDA_SUCCESS;
}

uint32_t ToDevice(Dispatcher& d, session::Call& call, CUdeviceptr to, CUstream stream) {
  if (d.QueryStream(call, stream) == CUDA_ERROR_NOT_READY && call.bulk_left() <= kMaxQueuedCopy) {
    return QueueToDevice(d, call, to, stream);
  }
  const StagingBuffer piece = d.staging().Take(kPieceBytes);
  if (!piece) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto& driver = d.driver();
  const auto queued = Variant(call, driver.cuMemcpyHtoDAsync_v2, driver.cuMemcpyHtoDAsync_v2_ptsz);
  if (!queued) return d.NotInDriver("cuMemcpyHtoDAsync_v2");
  const auto now = Variant(call, driver.cuMemcpyHtoD_v2, driver.cuMemcpyHtoD_v2_ptds);
  return InPieces(call, piece.data(), PieceBytes(d), [&](uint64_t offset, size_t size) {
    const CUresult result =
        CopyPiece(d, call, stream, now, queued, to + offset, piece.data(), size);
    const uint64_t left = call.bulk_left();
    char* rest = result ? nullptr : Addressable(d, to + offset + size, left);
    return rest && !call.ReadBulk(rest, left) ? CUDA_ERROR_UNKNOWN : result;
  });
}

// In pieces, each waited for and sent.
uint32_t ToGuest(Dispatcher& d, session::Call& call, CUdeviceptr from, uint64_t bytes,
                 CUstream stream) {
  d.BeforeWaitingForStream(call, stream);
  const StagingBuffer piece = d.staging().Take(kPieceBytes);
  if (!piece) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto& driver = d.driver();
  const auto queued = Variant(call, driver.cuMemcpyDtoHAsync_v2, driver.cuMemcpyDtoHAsync_v2_ptsz);
  if (!queued) return d.NotInDriver("cuMemcpyDtoHAsync_v2");
  const auto now = Variant(call, driver.cuMemcpyDtoH_v2, driver.cuMemcpyDtoH_v2_ptds);
  for (uint64_t offset = 0; offset < bytes;) {
    const size_t size = std::min<uint64_t>(bytes - offset, PieceBytes(d));
    if (const CUresult result =
            CopyPiece(d, call, stream, now, queued, piece.data(), from + offset, size)) {
      return result;
    }
    if (!call.SendBulk(piece.data(), size)) return kGone;
    offset += size;
    if (const char* rest = Addressable(d, from + offset, bytes - offset)) {
      return call.SendBulk(rest, bytes - offset) ? uint32_t{CUDA_SUCCESS} : kGone;
    }
  }
  return CUDA_SUCCESS;
}

// Whether `stream` is another one in each thread.
bool IsPerThread(const session::Call& call, CUstream stream) {
  return stream == CU_STREAM_PER_THREAD || (!stream && call.per_thread_stream());
}

// A copy back that nobody waits for; see copy_back.h.
uint32_t QueueToGuest(Dispatcher& d, session::Call& call, const api::MemcpyDtoHAsyncV2Request& in,
                      CUstream stream) {
  StagingBuffer buffer = d.staging().Take(in.ByteCount);
  if (!buffer) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto copy =
      Variant(call, d.driver().cuMemcpyDtoHAsync_v2, d.driver().cuMemcpyDtoHAsync_v2_ptsz);
  if (!copy) return d.NotInDriver("cuMemcpyDtoHAsync_v2");
  const char* source =
      IsPerThread(call, stream) ? nullptr : Addressable(d, in.srcDevice, in.ByteCount);
  const bool put_off =
      source && in.ByteCount >= CopiesBack::kPutOffFrom && d.copies_back().MayPutOff();
  CUevent done = nullptr;
  if (const CUresult result = d.driver().cuEventCreate(&done, CU_EVENT_DISABLE_TIMING))
    return result;
  CUresult result =
      put_off ? CUDA_SUCCESS : copy(buffer.data(), in.srcDevice, in.ByteCount, stream);
  if (result == CUDA_SUCCESS) result = d.RecordEvent(call, done, stream);
  if (result != CUDA_SUCCESS) {
    d.driver().cuEventDestroy_v2(done);
    return result;
  }
  if (put_off) {
    d.copies_back().PutOff(in.copy_id, std::move(buffer), in.ByteCount, done,
                           {source, stream, d.CurrentContext()});
  } else {
    d.copies_back().Add(in.copy_id, std::move(buffer), in.ByteCount, done);
  }
  return CUDA_SUCCESS;
}

// One side of a three-dimensional copy that lies in the guest's memory: its rows travel packed.
struct PackedSide {
  StagingBuffer buffer;
  uint64_t bytes = 0;
};

bool RowsFit(const CUDA_MEMCPY3D& copy, uint64_t* bytes) {
  return PackedBytes(copy.WidthInBytes, copy.Height, copy.Depth, bytes) &&
         *bytes <= Staging::kMaxOnLoan;
}

bool DeviceSideAllowed(Dispatcher& d, CUdeviceptr base, CopySide side, const CUDA_MEMCPY3D& copy) {
  if (copy.WidthInBytes == 0 || copy.Height == 0 || copy.Depth == 0) return true;
  if (side.height == 0) side.height = copy.Height;
  uint64_t end = 0;
  return EndOf(side, copy.WidthInBytes, copy.Height, copy.Depth, &end) &&
         end <= UINT64_MAX - base && d.memory().Allows(base, end);
}

uint32_t Copy3D(Dispatcher& d, session::Call& call, const std::string& description,
                CUstream stream) {
  CUDA_MEMCPY3D copy;
  if (description.size() != sizeof copy) return session::Handler::kMalformed;
  memcpy(&copy, description.data(), sizeof copy);
  const bool from_guest = copy.srcMemoryType == CU_MEMORYTYPE_HOST,
             to_guest = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  const bool from_device = copy.srcMemoryType == CU_MEMORYTYPE_DEVICE,
             to_device = copy.dstMemoryType == CU_MEMORYTYPE_DEVICE;
  // Arrays are refused in the guest, and unified addresses resolved there.
  if (from_guest == from_device || to_guest == to_device || (from_guest && to_guest))
    return CUDA_ERROR_INVALID_VALUE;
  uint64_t bytes = 0;
  if (!RowsFit(copy, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  if (from_guest && !BulkFits(call, bytes)) return session::Handler::kMalformed;
  const CopySide from{copy.srcPitch, copy.srcHeight, copy.srcXInBytes, copy.srcY, copy.srcZ},
      to{copy.dstPitch, copy.dstHeight, copy.dstXInBytes, copy.dstY, copy.dstZ};
  if ((from_device && !DeviceSideAllowed(d, copy.srcDevice, from, copy)) ||
      (to_device && !DeviceSideAllowed(d, copy.dstDevice, to, copy))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  StagingBuffer rows;
  if (from_guest || to_guest) {
    if (!(rows = d.staging().Take(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (from_guest) {
    if (bytes > 0 && !call.ReadBulk(rows.data(), bytes)) return kGone;
    copy.srcHost = rows.data();
    copy.srcXInBytes = copy.srcY = copy.srcZ = 0;
    copy.srcPitch = copy.WidthInBytes;
    copy.srcHeight = copy.Height;
  }
  if (to_guest) {
    copy.dstHost = rows.data();
    copy.dstXInBytes = copy.dstY = copy.dstZ = 0;
    copy.dstPitch = copy.WidthInBytes;
    copy.dstHeight = copy.Height;
  }
  if (from_guest || to_guest) d.BeforeWaitingForStream(call, stream);
  const auto entry =
      Variant(call, d.driver().cuMemcpy3DAsync_v2, d.driver().cuMemcpy3DAsync_v2_ptsz);
  if (!entry) return d.NotInDriver("cuMemcpy3DAsync_v2");
  if (const CUresult result = entry(&copy, stream)) return result;
  if (from_guest || to_guest) {
    if (const CUresult result = d.SynchronizeStream(call, stream)) return result;
  }
  for (uint64_t offset = 0; to_guest && offset < bytes;) {
    const size_t size = std::min<uint64_t>(bytes - offset, wire::kMaxReplyPieceBytes);
    if (!call.SendBulk(rows.data() + offset, size)) return kGone;
    offset += size;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace manual {

uint32_t cuMemcpyHtoD_v2(Dispatcher& d, session::Call& call, const api::MemcpyHtoDV2Request& in,
                         api::None*) {
  if (!BulkFits(call, in.ByteCount)) return session::Handler::kMalformed;
  if (!d.memory().Allows(in.dstDevice, in.ByteCount)) return CUDA_ERROR_INVALID_VALUE;
  return ToDevice(d, call, in.dstDevice, nullptr);
}

uint32_t cuMemcpyHtoDAsync_v2(Dispatcher& d, session::Call& call,
                              const api::MemcpyHtoDAsyncV2Request& in, api::None*) {
  if (!BulkFits(call, in.ByteCount)) return session::Handler::kMalformed;
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!d.memory().Allows(in.dstDevice, in.ByteCount)) return CUDA_ERROR_INVALID_VALUE;
  return ToDevice(d, call, in.dstDevice, stream);
}

uint32_t cuMemcpyDtoH_v2(Dispatcher& d, session::Call& call, const api::MemcpyDtoHV2Request& in,
                         api::None*) {
  if (!d.memory().Allows(in.srcDevice, in.ByteCount)) return CUDA_ERROR_INVALID_VALUE;
  return ToGuest(d, call, in.srcDevice, in.ByteCount, nullptr);
}

uint32_t cuMemcpyDtoHAsync_v2(Dispatcher& d, session::Call& call,
                              const api::MemcpyDtoHAsyncV2Request& in, api::None*) {
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!d.memory().Allows(in.srcDevice, in.ByteCount)) return CUDA_ERROR_INVALID_VALUE;
  if (in.copy_id != 0 && in.ByteCount <= kMaxQueuedCopy) return QueueToGuest(d, call, in, stream);
  return ToGuest(d, call, in.srcDevice, in.ByteCount, stream);
}

uint32_t cuMemcpy3D_v2(Dispatcher& d, session::Call& call, const api::Memcpy3DV2Request& in,
                       api::None*) {
  return Copy3D(d, call, in.copy, nullptr);
}

uint32_t cuMemcpy3DAsync_v2(Dispatcher& d, session::Call& call,
                            const api::Memcpy3DAsyncV2Request& in, api::None*) {
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  return Copy3D(d, call, in.copy, stream);
}

}  // namespace manual
}  // namespace smolvm::dispatch
