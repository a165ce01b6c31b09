#include "guest-shim/libcuda/entry/entry.h"

#include <cstdlib>
#include <mutex>
#include <set>

#include "protocol/api/memory.wire.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

bool EveryCallWaits() {
  static const bool waits = [] {
    const char* text = getenv("SMOLVM_CUDA_SYNC");
    return text && *text && std::string_view(text) != "0";
  }();
  return waits;
}

CUresult NotServed(const Session& session, uint32_t call_id) {
  static auto* mutex = new std::mutex;
  static auto* logged = new std::set<uint32_t>;
  const std::lock_guard lock(*mutex);
  if (logged->insert(call_id).second) {
    log::Warn(
        "event=not_served call_id={:#x} guest_version={} host_version={} hint=\"update smolvm on "
        "the host\"",
        call_id, CUDA_VERSION, session.hello().spec_version);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

bool IsLocal(uint32_t call_id) {
  for (const uint32_t id : api::kCallIds) {
    if (id == call_id) return false;
  }
  return true;
}

}  // namespace

CUresult Ready(uint32_t call_id) {
  const Session* session = CurrentSession();
  if (!session) return CUDA_ERROR_NOT_INITIALIZED;
  if (CurrentLane().in_callback) return CUDA_ERROR_NOT_PERMITTED;
  if (!session->HostKnows(call_id) && !IsLocal(call_id)) return NotServed(*session, call_id);
  return CUDA_SUCCESS;
}

CUresult BadReply() {
  log::Error("event=bad_reply");
  return CUDA_ERROR_UNKNOWN;
}

CUresult Exchange(uint32_t call_id, uint32_t variant, const std::string& args, Bulk bulk,
                  Reply* reply) {
  return TheSession().connection().Call(call_id, variant, CurrentLane().id, args, bulk, reply);
}

CUresult PostArgs(uint32_t call_id, uint32_t variant, const std::string& args, Bulk bulk) {
  if (EveryCallWaits()) {
    Reply reply;
    return Exchange(call_id, variant, args, bulk, &reply);
  }
  return TheSession().connection().Post(call_id, variant, CurrentLane().id, args, bulk);
}

bool ToHostOrdinal(int* ordinal) {
  const auto& visible = TheSession().visible();
  if (*ordinal < 0 || *ordinal >= static_cast<int>(visible.size())) return false;
  *ordinal = visible[*ordinal];
  return true;
}

CUdevice ToGuestOrdinal(int ordinal) {
  const auto& visible = TheSession().visible();
  for (size_t i = 0; i < visible.size(); ++i) {
    if (visible[i] == ordinal) return static_cast<CUdevice>(i);
  }
  return CU_DEVICE_INVALID;
}

bool KnownStream(CUstream stream) {
  if (stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
    return true;
  Session& session = TheSession();
  return session.single_context() &&
         session.streams_and_events().Has(reinterpret_cast<uint64_t>(stream));
}

bool KnownEvent(CUevent event) {
  Session& session = TheSession();
  return session.single_context() &&
         session.streams_and_events().Has(reinterpret_cast<uint64_t>(event));
}

bool KnownMemory(CUdeviceptr address, Wide extent) {
  Session& session = TheSession();
  return session.single_context() && session.memory().Holds(address, extent);
}

bool ContextProved() { return CurrentLane().proved_epoch == TheSession().epoch(); }
void ProveContext() { CurrentLane().proved_epoch = TheSession().epoch(); }
void ContextChanged() { TheSession().NewEpoch(); }

CUresult RequireContext() {
  if (ContextProved()) return CUDA_SUCCESS;
  Reply reply;
  const CUresult result = Exchange(api::id::cuCtxGetDevice, kNoVariant, {}, {}, &reply);
  if (result == CUDA_SUCCESS) ProveContext();
  return result;
}

void Minted(Kind kind, uint64_t id) {
  if (kind == Kind::kStream || kind == Kind::kEvent) TheSession().streams_and_events().Add(id);
  if (kind == Kind::kContext) TheSession().ContextSeen(id);
}

void Ended(Kind kind, uint64_t id) {
  if (kind == Kind::kStream || kind == Kind::kEvent) TheSession().streams_and_events().Remove(id);
  if (kind == Kind::kContext) {
    TheSession().ContextGone(id);
    TheSession().pinned().EndWith(reinterpret_cast<CUcontext>(id), [](const PinnedBlock& block) {
      return TheSession().connection().CopyBackPending(block.base, block.size);
    });
    ForgetAll();
  }
}

void ContextSeen(uint64_t id) { TheSession().ContextSeen(id); }

bool MemoryMinted(CUdeviceptr address, uint64_t size) {
  if (!TheSession().memory().Reserve(address, size)) {
    log::Error(
        "event=address_in_use address={:#x} bytes={} hint=\"the program has mapped memory where "
        "the device's is\"",
        address, size);
    return false;
  }
  TheSession().memory().Add(address, size);
  return true;
}

CUresult GiveMemoryBack(CUdeviceptr address) {
  api::None none;
  Ask(api::id::cuMemFree_v2, kNoVariant, api::MemFreeV2Request{address}, &none);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

void MemoryFreed(CUdeviceptr address) { TheSession().memory().Remove(address); }

void ForgetAll() {
  TheSession().streams_and_events().Clear();
  TheSession().memory().Clear();
}

}  // namespace smolvm::guest
