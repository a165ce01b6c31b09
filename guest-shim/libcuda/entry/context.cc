// The forms of cuCtxCreate that carry more than flags.
#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/context.wire.h"
#include "protocol/api/guest_manual.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

CUresult Create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  if (!pctx) return CUDA_ERROR_INVALID_VALUE;
  api::CtxCreateV2Request request;
  request.flags = flags;
  request.dev = dev;
  if (!ToHostOrdinal(&request.dev)) return CUDA_ERROR_INVALID_DEVICE;
  api::CtxCreateV2Reply reply;
  const CUresult result = Ask(api::id::cuCtxCreate_v2, kNoVariant, request, &reply);
  ContextChanged();
  if (result != CUDA_SUCCESS) return result;
  *pctx = reinterpret_cast<CUcontext>(reply.pctx);
  ContextSeen(reply.pctx);
  return CUDA_SUCCESS;
}

CUresult Refuse(const char* what, CUresult result = CUDA_ERROR_NOT_SUPPORTED) {
  log::Warn("event=not_supported call=cuCtxCreate what=\"{}\"", what);
  return result;
}

}  // namespace

namespace manual {

CUresult cuCtxCreate_v3(uint32_t, CUcontext* pctx, CUexecAffinityParam* paramsArray, int numParams,
                        unsigned int flags, CUdevice dev) {
  if (numParams < 0 || (numParams > 0) != (paramsArray != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  return numParams > 0 ? Refuse("execution affinity", CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY)
                       : Create(pctx, flags, dev);
}

CUresult cuCtxCreate_v4(uint32_t, CUcontext* pctx, CUctxCreateParams* ctxCreateParams,
                        unsigned int flags, CUdevice dev) {
  if (ctxCreateParams && ctxCreateParams->numExecAffinityParams > 0)
    return Refuse("execution affinity");
  if (ctxCreateParams && ctxCreateParams->cigParams) return Refuse("CUDA in graphics");
  return Create(pctx, flags, dev);
}

}  // namespace manual
}  // namespace smolvm::guest
