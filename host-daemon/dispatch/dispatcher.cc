#include "host-daemon/dispatch/dispatcher.h"

#include "protocol/api/call_ids.h"
#include "protocol/log/log.h"

namespace smolvm::dispatch {
namespace {

// More streams than this are not asked one by one before a call that waits for all of them.
constexpr size_t kMaxStreamsAsked = 32;

// Set by a call that synchronises: what kernels printed can be seen by the program now.
thread_local bool t_synchronised = false;

// Calls that neither change what a copy back reads nor show in what order it was read. Copies back
// that were put off may stay so while nothing else comes.
bool LeavesCopiesBack(uint32_t call_id) {
  return call_id == api::id::cuMemcpyDtoHAsync_v2 || call_id == api::id::cuStreamSynchronize ||
         call_id == api::id::cuStreamQuery || call_id == api::id::cuCtxSynchronize;
}

}  // namespace

Dispatcher::Dispatcher(const driver::DriverTable& driver, const Policy& policy)
    : driver_(driver),
      device_memory_is_addressable_(policy.device_memory_is_addressable),
      memory_(driver, policy.memory_limit),
      staging_(driver),
      copies_back_(driver),
      output_(policy.output_fd, wire::kDeviceOutput),
      errors_(policy.errors_fd, wire::kDeviceErrors) {
  for (size_t i = 0; i < kCallCount; ++i) rows_[kCalls[i].id] = &kCalls[i];
}

const session::CallTraits* Dispatcher::Traits(uint32_t call_id) const {
  return call_id < rows_.size() && rows_[call_id] ? &rows_[call_id]->traits : nullptr;
}

uint32_t Dispatcher::Handle(session::Call& call) {
  t_synchronised = false;
  if (!LeavesCopiesBack(call.header().call_id)) copies_back_.Begin();
  return rows_[call.header().call_id]->serve(*this, call);
}

void Dispatcher::BeforeReply(session::Call& call) {
  copies_back_.SendFinished(call.session());
  if (!t_synchronised) return;
  output_.SendNew(call.session());
  errors_.SendNew(call.session());
}

CUresult Dispatcher::NotInDriver(const char* name) {
  const std::lock_guard lock(logged_mutex_);
  if (logged_.insert(name).second) log::Warn("event=not_in_driver call={}", name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool Dispatcher::MemoryMinted(CUdeviceptr address, uint64_t bytes) {
  if (memory_.Add(address, bytes, CurrentContext())) return true;
  if (driver_.cuMemFree_v2) driver_.cuMemFree_v2(address);
  return false;
}

CUcontext Dispatcher::CurrentContext() const {
  CUcontext context = nullptr;
  if (driver_.cuCtxGetCurrent) driver_.cuCtxGetCurrent(&context);
  return context;
}

void Dispatcher::ContextEnded(CUcontext context) {
  handles_.RemoveOwnedBy(context);
  memory_.RemoveOwnedBy(context);
  layouts_.RemoveImages([this](uint64_t id) {
    CUmodule module = nullptr;
    CUlibrary library = nullptr;
    return !handles_.Find(id, &module) && !handles_.Find(id, &library);
  });
}

CUresult Dispatcher::QueryStream(const session::Call& call, CUstream stream) const {
  const auto query = call.per_thread_stream() ? driver_.cuStreamQuery_ptsz : driver_.cuStreamQuery;
  return query ? query(stream) : CUDA_ERROR_NOT_READY;
}

CUresult Dispatcher::SynchronizeStream(const session::Call& call, CUstream stream) const {
  const auto wait =
      call.per_thread_stream() ? driver_.cuStreamSynchronize_ptsz : driver_.cuStreamSynchronize;
  return wait ? wait(stream) : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult Dispatcher::RecordEvent(const session::Call& call, CUevent event, CUstream stream) const {
  const auto record = call.per_thread_stream() ? driver_.cuEventRecord_ptsz : driver_.cuEventRecord;
  return record ? record(event, stream) : CUDA_ERROR_NOT_SUPPORTED;
}

void Dispatcher::BeforeWaitingForStream(session::Call& call, CUstream stream) {
  t_synchronised = true;
  if (QueryStream(call, stream) == CUDA_ERROR_NOT_READY) call.AboutToBlock();
}

void Dispatcher::BeforeWaitingForEvent(session::Call& call, CUevent event) {
  t_synchronised = true;
  if (!driver_.cuEventQuery || driver_.cuEventQuery(event) == CUDA_ERROR_NOT_READY)
    call.AboutToBlock();
}

void Dispatcher::BeforeWaitingForContext(session::Call& call) {
  t_synchronised = true;
  const std::vector<CUstream> streams = handles_.Streams();
  bool busy = streams.size() > kMaxStreamsAsked ||
              QueryStream(call, CU_STREAM_LEGACY) == CUDA_ERROR_NOT_READY ||
              QueryStream(call, CU_STREAM_PER_THREAD) == CUDA_ERROR_NOT_READY;
  for (size_t i = 0; i < streams.size() && !busy; ++i)
    busy = QueryStream(call, streams[i]) == CUDA_ERROR_NOT_READY;
  if (busy) call.AboutToBlock();
}

}  // namespace smolvm::dispatch
