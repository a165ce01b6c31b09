// Streams: creation, synchronisation, what they are, and callbacks in them.
#include <algorithm>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/device/attributes.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {
namespace {

CUresult Create(CUstream* handle, unsigned flags, int priority) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamCreateWithPriority(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  const auto group = context->group();
  if (group == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  const auto kind =
      flags & CU_STREAM_NON_BLOCKING ? Stream::Kind::kNonBlocking : Stream::Kind::kBlocking;
  // Documented: a priority outside the range is clamped to it.
  auto stream = std::make_shared<Stream>(
      group, kind, flags, std::clamp(priority, kGreatestStreamPriority, kLeastStreamPriority));
  group->Add(stream);
  *handle = TheDriver().streams.Add(std::move(stream));
  return CUDA_SUCCESS;
}

// Returns at once; what is queued still runs.
CUresult Destroy(CUstream handle) {
  SMOLVM_ENTER();
  if (handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
    return CUDA_ERROR_INVALID_HANDLE;
  const auto stream = TheDriver().streams.Remove(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  stream->group().Retire(stream);
  return CUDA_SUCCESS;
}

CUresult Query(CUstream handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  if (!stream->Pending().empty()) return CUDA_ERROR_NOT_READY;
  FlushDeviceOutput();
  return FaultOf(*stream);
}

CUresult Synchronize(CUstream handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  for (const Ticket& ticket : stream->Pending()) ticket.Wait();
  FlushDeviceOutput();
  return FaultOf(*stream);
}

CUresult WaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamWaitEvent(flags));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  const auto event = event_handle == nullptr ? nullptr : TheDriver().events.Find(event_handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  SMOLVM_RETURN_IF_ERROR(FaultOf(*stream));
  stream->WaitFor(event->last());
  return CUDA_SUCCESS;
}

CUresult LaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
  SMOLVM_ENTER();
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  SMOLVM_RETURN_IF_ERROR(FaultOf(*stream));
  stream->Submit(Stream::Where::kThread, [stream = stream.get(), function, data] {
    // Documented: not called when the context has failed.
    if (stream->group().fault() == 0) RunHostCallback([&] { function(data); });
  });
  return CUDA_SUCCESS;
}

CUresult AddCallback(CUstream given, CUstream handle, CUstreamCallback callback, void* data,
                     unsigned flags) {
  SMOLVM_ENTER();
  if (callback == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamAddCallback(flags));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  stream->Submit(Stream::Where::kThread, [stream = stream.get(), given, callback, data] {
    const CUresult status = FaultOf(*stream);
    RunHostCallback([&] { callback(given, status, data); });
  });
  return CUDA_SUCCESS;
}

// The handle of the stream's context.
CUresult GetContext(CUstream handle, CUcontext* context) {
  SMOLVM_ENTER();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  *context = reinterpret_cast<CUcontext>(stream->group().owner());
  return CUDA_SUCCESS;
}

CUresult GetContextV2(CUstream handle, CUcontext* context, CUgreenCtx* green) {
  SMOLVM_ENTER();
  if (context == nullptr || green == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *green = nullptr;
  return GetContext(handle, context);
}

// For each of the queries below: the stream, once `out` is known to be given.
template <typename T>
CUresult Describe(CUstream handle, T* out, T (*value)(const Stream&)) {
  SMOLVM_ENTER();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  *out = value(*stream);
  return CUDA_SUCCESS;
}

CUresult GetPriority(CUstream handle, int* priority) {
  return Describe<int>(handle, priority, [](const Stream& stream) { return stream.priority(); });
}
CUresult GetFlags(CUstream handle, unsigned* flags) {
  return Describe<unsigned>(handle, flags, [](const Stream& stream) { return stream.flags(); });
}
CUresult GetId(CUstream handle, unsigned long long* id) {
  return Describe<unsigned long long>(
      handle, id, [](const Stream& stream) -> unsigned long long { return stream.id(); });
}
CUresult GetDevice(CUstream handle, CUdevice* device) {
  return Describe<CUdevice>(handle, device, [](const Stream&) { return kDevice; });
}
CUresult IsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
  return Describe<CUstreamCaptureStatus>(
      handle, status, [](const Stream&) { return CU_STREAM_CAPTURE_STATUS_NONE; });
}

// Nothing can be captured (cuStreamBeginCapture is not supported), so there is no more to tell.
CUresult CaptureInfo(CUstream handle, CUstreamCaptureStatus* status,
                     const CUgraphNode** dependencies, const CUgraphEdgeData** edges) {
  SMOLVM_ENTER();
  if (edges != nullptr && dependencies == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return IsCapturing(handle, status);
}

}  // namespace

SMOLVM_API cuStreamCreate(CUstream* stream, unsigned int flags) { return Create(stream, flags, 0); }
SMOLVM_API cuStreamCreateWithPriority(CUstream* stream, unsigned int flags, int priority) {
  return Create(stream, flags, priority);
}
SMOLVM_API cuStreamDestroy_v2(CUstream stream) { return Destroy(stream); }
SMOLVM_API cuStreamDestroy(CUstream stream) { return Destroy(stream); }

SMOLVM_API cuStreamQuery(CUstream stream) { return Query(Legacy(stream)); }
SMOLVM_API cuStreamQuery_ptsz(CUstream stream) { return Query(PerThread(stream)); }
SMOLVM_API cuStreamSynchronize(CUstream stream) { return Synchronize(Legacy(stream)); }
SMOLVM_API cuStreamSynchronize_ptsz(CUstream stream) { return Synchronize(PerThread(stream)); }

SMOLVM_API cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags) {
  return WaitEvent(Legacy(stream), event, flags);
}
SMOLVM_API cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags) {
  return WaitEvent(PerThread(stream), event, flags);
}

SMOLVM_API cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return LaunchHostFunc(Legacy(stream), function, data);
}
SMOLVM_API cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void* data) {
  return LaunchHostFunc(PerThread(stream), function, data);
}
SMOLVM_API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data,
                               unsigned int flags) {
  return AddCallback(stream, Legacy(stream), callback, data, flags);
}
SMOLVM_API cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void* data,
                                    unsigned int flags) {
  return AddCallback(stream, PerThread(stream), callback, data, flags);
}

SMOLVM_API cuStreamGetPriority(CUstream stream, int* priority) {
  return GetPriority(Legacy(stream), priority);
}
SMOLVM_API cuStreamGetPriority_ptsz(CUstream stream, int* priority) {
  return GetPriority(PerThread(stream), priority);
}
SMOLVM_API cuStreamGetFlags(CUstream stream, unsigned int* flags) {
  return GetFlags(Legacy(stream), flags);
}
SMOLVM_API cuStreamGetFlags_ptsz(CUstream stream, unsigned int* flags) {
  return GetFlags(PerThread(stream), flags);
}
SMOLVM_API cuStreamGetId(CUstream stream, unsigned long long* id) {
  return GetId(Legacy(stream), id);
}
SMOLVM_API cuStreamGetId_ptsz(CUstream stream, unsigned long long* id) {
  return GetId(PerThread(stream), id);
}
SMOLVM_API cuStreamGetDevice(CUstream stream, CUdevice* device) {
  return GetDevice(Legacy(stream), device);
}
SMOLVM_API cuStreamGetDevice_ptsz(CUstream stream, CUdevice* device) {
  return GetDevice(PerThread(stream), device);
}
SMOLVM_API cuStreamGetCtx(CUstream stream, CUcontext* context) {
  return GetContext(Legacy(stream), context);
}
SMOLVM_API cuStreamGetCtx_ptsz(CUstream stream, CUcontext* context) {
  return GetContext(PerThread(stream), context);
}
SMOLVM_API cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  return GetContextV2(Legacy(stream), context, green);
}
SMOLVM_API cuStreamGetCtx_v2_ptsz(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  return GetContextV2(PerThread(stream), context, green);
}
SMOLVM_API cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return IsCapturing(Legacy(stream), status);
}
SMOLVM_API cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return IsCapturing(PerThread(stream), status);
}

// Documented: but for the status, what is returned is valid only of a capture that is active.
SMOLVM_API cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*) {
  return IsCapturing(Legacy(stream), status);
}
SMOLVM_API cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                       cuuint64_t*) {
  return IsCapturing(PerThread(stream), status);
}
SMOLVM_API cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                     CUgraph*, const CUgraphNode**, size_t*) {
  return IsCapturing(Legacy(stream), status);
}
SMOLVM_API cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                          cuuint64_t*, CUgraph*, const CUgraphNode**, size_t*) {
  return IsCapturing(PerThread(stream), status);
}
SMOLVM_API cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                     CUgraph*, const CUgraphNode** dependencies,
                                     const CUgraphEdgeData** edges, size_t*) {
  return CaptureInfo(Legacy(stream), status, dependencies, edges);
}
SMOLVM_API cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                          cuuint64_t*, CUgraph*, const CUgraphNode** dependencies,
                                          const CUgraphEdgeData** edges, size_t*) {
  return CaptureInfo(PerThread(stream), status, dependencies, edges);
}

// Nothing is ever captured, but the mode is kept, since libraries set it and put it back.
SMOLVM_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  SMOLVM_ENTER();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuThreadExchangeStreamCaptureMode(*mode));
  std::swap(*mode, ThisThread().capture_mode);
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
