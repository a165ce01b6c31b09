// Ends of contexts: what they owned is forgotten with them.
#include "host-daemon/dispatch/dispatcher.h"
#include "protocol/api/host_manual.h"

namespace smolvm::dispatch {
namespace {

// The primary context of a device, if it is alive, without keeping it so.
CUcontext PrimaryContext(Dispatcher& d, CUdevice device) {
  CUcontext context = nullptr;
  unsigned flags = 0;
  int active = 0;
  if (!d.driver().cuDevicePrimaryCtxGetState ||
      d.driver().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || !active) {
    return nullptr;
  }
  if (d.driver().cuDevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS) return nullptr;
  d.driver().cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

bool PrimaryIsActive(Dispatcher& d, CUdevice device) {
  unsigned flags = 0;
  int active = 0;
  return d.driver().cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active;
}

}  // namespace

namespace manual {

uint32_t cuCtxDestroy_v2(Dispatcher& d, session::Call& call, const api::CtxDestroyV2Request& in,
                         api::None*) {
  if (!d.driver().cuCtxDestroy_v2) return d.NotInDriver("cuCtxDestroy_v2");
  CUcontext context = nullptr;
  if (!d.handles().Find(in.ctx, &context)) return CUDA_ERROR_INVALID_CONTEXT;
  call.AboutToBlock();
  const CUresult result = d.driver().cuCtxDestroy_v2(context);
  if (result == CUDA_SUCCESS) d.ContextEnded(context);
  return result;
}

uint32_t cuCtxDetach(Dispatcher& d, session::Call& call, const api::CtxDetachRequest& in,
                     api::None*) {
  if (!d.driver().cuCtxDetach) return d.NotInDriver("cuCtxDetach");
  CUcontext context = nullptr;
  if (!d.handles().Find(in.ctx, &context)) return CUDA_ERROR_INVALID_CONTEXT;
  call.AboutToBlock();
  const CUresult result = d.driver().cuCtxDetach(context);
  unsigned version = 0;
  // Detaching ends a context only when nothing else is attached to it.
  if (result == CUDA_SUCCESS && d.driver().cuCtxGetApiVersion(context, &version) != CUDA_SUCCESS) {
    d.ContextEnded(context);
  }
  return result;
}

uint32_t cuDevicePrimaryCtxRelease_v2(Dispatcher& d, session::Call& call,
                                      const api::DevicePrimaryCtxReleaseV2Request& in, api::None*) {
  if (!d.driver().cuDevicePrimaryCtxRelease_v2)
    return d.NotInDriver("cuDevicePrimaryCtxRelease_v2");
  const CUcontext context = PrimaryContext(d, in.dev);
  call.AboutToBlock();
  const CUresult result = d.driver().cuDevicePrimaryCtxRelease_v2(in.dev);
  if (result == CUDA_SUCCESS && context && !PrimaryIsActive(d, in.dev)) d.ContextEnded(context);
  return result;
}

uint32_t cuDevicePrimaryCtxReset_v2(Dispatcher& d, session::Call& call,
                                    const api::DevicePrimaryCtxResetV2Request& in, api::None*) {
  if (!d.driver().cuDevicePrimaryCtxReset_v2) return d.NotInDriver("cuDevicePrimaryCtxReset_v2");
  const CUcontext context = PrimaryContext(d, in.dev);
  call.AboutToBlock();
  const CUresult result = d.driver().cuDevicePrimaryCtxReset_v2(in.dev);
  if (result == CUDA_SUCCESS && context) d.ContextEnded(context);
  return result;
}

}  // namespace manual
}  // namespace smolvm::dispatch
