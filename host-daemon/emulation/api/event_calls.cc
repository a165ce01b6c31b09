#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {
namespace {

CUresult FindEvent(CUevent handle, std::shared_ptr<Event>* event) {
  *event = handle == nullptr ? nullptr : TheDriver().events.Find(handle);
  return *event != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// The fault of the context in which the event was last recorded.
CUresult FaultOf(const Event& event) {
  const auto stream = event.stream();
  return stream == nullptr ? CUDA_SUCCESS : FaultOf(*stream);
}

CUresult Destroy(CUevent handle) {
  SMOLVM_ENTER();
  if (handle == nullptr || TheDriver().events.Remove(handle) == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  return CUDA_SUCCESS;
}

CUresult Record(CUevent handle, CUstream stream_handle, unsigned flags) {
  SMOLVM_ENTER();
  // CU_EVENT_RECORD_EXTERNAL means something only while a stream is captured; documented: an error
  // elsewhere.
  SMOLVM_RETURN_IF_ERROR(api::check::cuEventRecordWithFlags(flags));
  SMOLVM_RETURN_IF_ERROR(api::refuse::cuEventRecordWithFlags(flags));
  std::shared_ptr<Event> event;
  SMOLVM_RETURN_IF_ERROR(FindEvent(handle, &event));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(stream_handle, &stream));
  SMOLVM_RETURN_IF_ERROR(FaultOf(*stream));
  if (stream->group().context_id() != event->context_id()) return CUDA_ERROR_INVALID_HANDLE;
  event->Record(stream);
  return CUDA_SUCCESS;
}

CUresult Elapsed(float* milliseconds, CUevent begin_handle, CUevent end_handle) {
  SMOLVM_ENTER();
  if (milliseconds == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Event> begin, end;
  SMOLVM_RETURN_IF_ERROR(FindEvent(begin_handle, &begin));
  SMOLVM_RETURN_IF_ERROR(FindEvent(end_handle, &end));
  if (!begin->timing() || !end->timing()) return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->Recorded() || !end->Recorded()) return CUDA_ERROR_INVALID_HANDLE;
  if (!begin->last().Done() || !end->last().Done()) return CUDA_ERROR_NOT_READY;
  *milliseconds = static_cast<float>(static_cast<double>(end->time_ns() - begin->time_ns()) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuEventCreate(CUevent* handle, unsigned int flags) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuEventCreate(flags));
  if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
    return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  SMOLVM_RETURN_IF_ERROR(api::refuse::cuEventCreate(flags));  // IPC_EVENT_SUPPORTED is 0
  *handle = TheDriver().events.Add(std::make_shared<Event>(flags, context->id()));
  context->AddEvent(*handle);
  return CUDA_SUCCESS;
}

SMOLVM_API cuEventDestroy_v2(CUevent event) { return Destroy(event); }
SMOLVM_API cuEventDestroy(CUevent event) { return Destroy(event); }

SMOLVM_API cuEventRecord(CUevent event, CUstream stream) {
  return Record(event, Legacy(stream), 0);
}
SMOLVM_API cuEventRecord_ptsz(CUevent event, CUstream stream) {
  return Record(event, PerThread(stream), 0);
}
SMOLVM_API cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags) {
  return Record(event, Legacy(stream), flags);
}
SMOLVM_API cuEventRecordWithFlags_ptsz(CUevent event, CUstream stream, unsigned int flags) {
  return Record(event, PerThread(stream), flags);
}

// Captures everything that is unfinished in the context.
SMOLVM_API cuCtxRecordEvent(CUcontext handle, CUevent event_handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  std::shared_ptr<Event> event;
  SMOLVM_RETURN_IF_ERROR(FindEvent(event_handle, &event));
  const auto group = context->group();
  if (group == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (group->context_id() != event->context_id()) return CUDA_ERROR_INVALID_HANDLE;
  event->Record(group->Recorder(), group->PendingAll());
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxWaitEvent(CUcontext handle, CUevent event_handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  std::shared_ptr<Event> event;
  SMOLVM_RETURN_IF_ERROR(FindEvent(event_handle, &event));
  const auto group = context->group();
  if (group == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (const Ticket ticket = event->last(); !ticket.Done()) group->HoldBack(ticket);
  return CUDA_SUCCESS;
}

SMOLVM_API cuEventQuery(CUevent handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Event> event;
  SMOLVM_RETURN_IF_ERROR(FindEvent(handle, &event));
  if (!event->last().Done()) return CUDA_ERROR_NOT_READY;
  return FaultOf(*event);
}

SMOLVM_API cuEventSynchronize(CUevent handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Event> event;
  SMOLVM_RETURN_IF_ERROR(FindEvent(handle, &event));
  event->last().Wait();
  FlushDeviceOutput();
  return FaultOf(*event);
}

SMOLVM_API cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return Elapsed(milliseconds, begin, end);
}
SMOLVM_API cuEventElapsedTime_v2(float* milliseconds, CUevent begin, CUevent end) {
  return Elapsed(milliseconds, begin, end);
}

}  // namespace smolvm::emulation
