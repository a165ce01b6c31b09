// Stream memory operations: writes of values, and waits for them, in device memory.
#include <unistd.h>

#include <atomic>
#include <type_traits>
#include <vector>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/transfer.h"

namespace smolvm::emulation {
namespace {

// A wait looks this often before it begins to sleep between looks.
constexpr int kLooksBeforeSleep = 64;
constexpr useconds_t kSleepUs = 20;

constexpr unsigned kConditionMask = 0x3;
constexpr unsigned kMostOperations = 256;  // CUDA: "less than or equal to 256"

template <typename T>
bool Satisfied(T now, T value, unsigned flags) {
  using Signed = std::make_signed_t<T>;
  switch (flags & kConditionMask) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<Signed>(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & value) != 0;
    default:
      return static_cast<T>(~(now | value)) != 0;
  }
}

template <typename T>
CUresult Find(CUdeviceptr address, Place* place) {
  if (address % sizeof(T) != 0) return CUDA_ERROR_INVALID_VALUE;
  return DevicePlace(address, sizeof(T), place);
}

template <typename T>
void SubmitWait(const std::shared_ptr<Stream>& stream, Place place, T value, unsigned flags) {
  stream->Submit(
      Stream::Where::kThread, [stream = stream.get(), place = std::move(place), value, flags] {
        const auto* word = reinterpret_cast<const T*>(place.at);
        for (int looks = 0; !Satisfied(__atomic_load_n(word, __ATOMIC_ACQUIRE), value, flags);
             ++looks) {
          if (stream->group().fault() != 0 || stream->group().cancelled()) return;
          if (looks >= kLooksBeforeSleep) usleep(kSleepUs);
        }
      });
}

template <typename T>
void SubmitWrite(const std::shared_ptr<Stream>& stream, Place place, T value) {
  stream->Submit(Stream::Where::kAnywhere,
                 [stream = stream.get(), place = std::move(place), value] {
                   if (stream->group().fault() == 0)
                     __atomic_store_n(reinterpret_cast<T*>(place.at), value, __ATOMIC_RELEASE);
                 });
}

CUresult CheckWaitFlags(unsigned flags) {
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamWaitValue32_v2(flags));
  return api::refuse::cuStreamWaitValue32_v2(flags);  // CAN_FLUSH_REMOTE_WRITES is 0
}

template <typename T>
CUresult Wait(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(CheckWaitFlags(flags));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  Place place;
  SMOLVM_RETURN_IF_ERROR(Find<T>(address, &place));
  SubmitWait(stream, std::move(place), value, flags);
  return CUDA_SUCCESS;
}

template <typename T>
CUresult Write(CUstream handle, CUdeviceptr address, T value, unsigned flags) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamWriteValue32_v2(flags));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  Place place;
  SMOLVM_RETURN_IF_ERROR(Find<T>(address, &place));
  SubmitWrite(stream, std::move(place), value);
  return CUDA_SUCCESS;
}

CUresult CheckOperation(const CUstreamBatchMemOpParams& op, Place* place) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      SMOLVM_RETURN_IF_ERROR(CheckWaitFlags(op.waitValue.flags));
      return Find<uint32_t>(op.waitValue.address, place);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      SMOLVM_RETURN_IF_ERROR(CheckWaitFlags(op.waitValue.flags));
      return Find<uint64_t>(op.waitValue.address, place);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return Find<uint32_t>(op.writeValue.address, place);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return Find<uint64_t>(op.writeValue.address, place);
    case CU_STREAM_MEM_OP_BARRIER:
      return CUDA_SUCCESS;  // operations of a stream are in order anyway
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void SubmitOperation(const std::shared_ptr<Stream>& stream, const CUstreamBatchMemOpParams& op,
                     Place place) {
  switch (op.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
      return SubmitWait<uint32_t>(stream, std::move(place), op.waitValue.value, op.waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return SubmitWait<uint64_t>(stream, std::move(place), op.waitValue.value64,
                                  op.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return SubmitWrite<uint32_t>(stream, std::move(place), op.writeValue.value);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return SubmitWrite<uint64_t>(stream, std::move(place), op.writeValue.value64);
    default:
      return;
  }
}

CUresult Batch(CUstream handle, unsigned count, CUstreamBatchMemOpParams* operations,
               unsigned flags) {
  SMOLVM_ENTER();
  if (flags != 0 || count > kMostOperations || (operations == nullptr && count != 0))
    return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  std::vector<Place> places(count);
  for (unsigned i = 0; i < count; ++i)
    SMOLVM_RETURN_IF_ERROR(CheckOperation(operations[i], &places[i]));
  for (unsigned i = 0; i < count; ++i) SubmitOperation(stream, operations[i], std::move(places[i]));
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                               unsigned int flags) {
  return Wait<uint32_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWaitValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                    unsigned int flags) {
  return Wait<uint32_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                  unsigned int flags) {
  return Wait<uint32_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWaitValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                       unsigned int flags) {
  return Wait<uint32_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                               unsigned int flags) {
  return Wait<uint64_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWaitValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                    unsigned int flags) {
  return Wait<uint64_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                  unsigned int flags) {
  return Wait<uint64_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWaitValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                       unsigned int flags) {
  return Wait<uint64_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                unsigned int flags) {
  return Write<uint32_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWriteValue32_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                     unsigned int flags) {
  return Write<uint32_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                   unsigned int flags) {
  return Write<uint32_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWriteValue32_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint32_t value,
                                        unsigned int flags) {
  return Write<uint32_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                unsigned int flags) {
  return Write<uint64_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWriteValue64_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                     unsigned int flags) {
  return Write<uint64_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                   unsigned int flags) {
  return Write<uint64_t>(Legacy(stream), address, value, flags);
}
SMOLVM_API cuStreamWriteValue64_v2_ptsz(CUstream stream, CUdeviceptr address, cuuint64_t value,
                                        unsigned int flags) {
  return Write<uint64_t>(PerThread(stream), address, value, flags);
}

SMOLVM_API cuStreamBatchMemOp(CUstream stream, unsigned int count,
                              CUstreamBatchMemOpParams* operations, unsigned int flags) {
  return Batch(Legacy(stream), count, operations, flags);
}
SMOLVM_API cuStreamBatchMemOp_ptsz(CUstream stream, unsigned int count,
                                   CUstreamBatchMemOpParams* operations, unsigned int flags) {
  return Batch(PerThread(stream), count, operations, flags);
}

SMOLVM_API cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                 CUstreamBatchMemOpParams* operations, unsigned int flags) {
  return Batch(Legacy(stream), count, operations, flags);
}
SMOLVM_API cuStreamBatchMemOp_v2_ptsz(CUstream stream, unsigned int count,
                                      CUstreamBatchMemOpParams* operations, unsigned int flags) {
  return Batch(PerThread(stream), count, operations, flags);
}

}  // namespace smolvm::emulation
