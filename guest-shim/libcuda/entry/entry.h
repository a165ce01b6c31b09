// What the generated entry points stand on.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "guest-shim/libcuda/state/session.h"
#include "protocol/api/call_ids.h"
#include "protocol/api/none.wire.h"
#include "protocol/wire/frame.h"

namespace smolvm::guest {

inline constexpr uint32_t kNoVariant = 0;
// The first call id that needs cuInit; those before answer by themselves.
inline constexpr uint32_t kFirstIdAfterInit = 0x120;

// Whether a call may be made at all: CUDA_ERROR_NOT_INITIALIZED before cuInit and in forked
// children, NOT_PERMITTED in host functions, NOT_SUPPORTED when the host does not know it.
CUresult Ready(uint32_t call_id);

// Runs an entry point's body; no exception leaves the library.
template <typename Body>
CUresult Guard(uint32_t call_id, Body&& body) {
  if (call_id >= kFirstIdAfterInit) {
    if (const CUresult result = Ready(call_id)) return result;
  }
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  } catch (...) {
    return CUDA_ERROR_UNKNOWN;
  }
}

// The session; only where Guard has let the call through.
inline Session& TheSession() { return *CurrentSession(); }

// The daemon sent what no daemon of ours sends.
CUresult BadReply();

// Sends encoded arguments and waits; decodes the reply.
CUresult Exchange(uint32_t call_id, uint32_t variant, const std::string& args, Bulk bulk,
                  Reply* reply);
// Sends encoded arguments without waiting (waits when SMOLVM_CUDA_SYNC=1).
CUresult PostArgs(uint32_t call_id, uint32_t variant, const std::string& args, Bulk bulk);

template <typename Request>
const std::string& EncodeArgs(const Request& request) {
  std::string& args = CurrentLane().args;
  args.clear();
  Encode(request, &args);
  return args;
}

template <typename Request, typename Result>
CUresult Ask(uint32_t call_id, uint32_t variant, const Request& request, Result* result,
             Bulk bulk = {}) {
  Reply reply;
  if (const CUresult status = Exchange(call_id, variant, EncodeArgs(request), bulk, &reply))
    return status;
  return Decode(reply.args, result) ? CUDA_SUCCESS : BadReply();
}

template <typename Request>
CUresult Post(uint32_t call_id, uint32_t variant, const Request& request, Bulk bulk = {}) {
  return PostArgs(call_id, variant, EncodeArgs(request), bulk);
}

// Device ordinals of the program ↔ the host's.
bool ToHostOrdinal(int* ordinal);
CUdevice ToGuestOrdinal(int ordinal);

// What is known for certain; see state/known.h. A handle counts only while a single context is
// alive.
bool KnownStream(CUstream stream);
bool KnownEvent(CUevent event);
bool KnownMemory(CUdeviceptr address, Wide extent);
// A context is current on this thread.
bool ContextProved();
void ProveContext();
void ContextChanged();
// For calls answered here that need a current context: CUDA_SUCCESS, or what the host says.
CUresult RequireContext();

void Minted(Kind kind, uint64_t id);
void Ended(Kind kind, uint64_t id);
void ContextSeen(uint64_t id);
// False when the program has memory of its own at these addresses; GiveMemoryBack then frees them
// on the host.
bool MemoryMinted(CUdeviceptr address, uint64_t size);
CUresult GiveMemoryBack(CUdeviceptr address);
void MemoryFreed(CUdeviceptr address);
// Everything that was known of handles and memory.
void ForgetAll();

}  // namespace smolvm::guest
