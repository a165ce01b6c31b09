// Page-locked host memory: the guest's own (state/pinned.h).
#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/context.wire.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/values.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

struct Where {
  CUcontext context = nullptr;
  CUdevice device = 0;
};

// The current context and its device, as the program will see them in pointer attributes.
CUresult CurrentWhere(Where* where) {
  api::CtxGetCurrentReply context;
  if (const CUresult result = Ask(api::id::cuCtxGetCurrent, kNoVariant, api::None{}, &context))
    return result;
  if (context.pctx == 0) return CUDA_ERROR_INVALID_CONTEXT;
  api::CtxGetDeviceReply device;
  if (const CUresult result = Ask(api::id::cuCtxGetDevice, kNoVariant, api::None{}, &device))
    return result;
  *where = {reinterpret_cast<CUcontext>(context.pctx), ToGuestOrdinal(device.device)};
  return CUDA_SUCCESS;
}

CUresult RefuseMapping() {
  log::Warn("event=not_supported what=\"host memory mapped into the device's address space\"");
  return CUDA_ERROR_NOT_SUPPORTED;
}

// Copies that still fill or read the block must be over before it goes.
CUresult WaitForCopies(const PinnedBlock& block) {
  if (!TheSession().connection().CopyBackPending(block.base, block.size)) return CUDA_SUCCESS;
  api::None none;
  return Ask(api::id::cuCtxSynchronize, kNoVariant, api::None{}, &none);
}

}  // namespace

namespace manual {

CUresult cuMemHostAlloc(uint32_t, void** pp, size_t bytesize, unsigned int Flags) {
  if (!pp || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::check::cuMemHostAlloc(Flags)) return result;
  Where where;
  if (const CUresult result = CurrentWhere(&where)) return result;
  void* data = TheSession().pinned().Allocate(bytesize, Flags, where.context, where.device);
  if (!data) return CUDA_ERROR_OUT_OF_MEMORY;
  *pp = data;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(uint32_t variant, void** pp, size_t bytesize) {
  return cuMemHostAlloc(variant, pp, bytesize, 0);
}

CUresult cuMemFreeHost(uint32_t, void* p) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = RequireContext()) return result;
  const auto block = TheSession().pinned().Find(p);
  if (!block || block->base != p || block->registered) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = WaitForCopies(*block)) return result;
  return TheSession().pinned().Free(p) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemHostRegister_v2(uint32_t, void* p, size_t bytesize, unsigned int Flags) {
  if (!p || bytesize == 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::check::cuMemHostRegister_v2(Flags)) return result;
  Where where;
  if (const CUresult result = CurrentWhere(&where)) return result;
  if (const CUresult result = api::refuse::cuMemHostRegister_v2(Flags)) return result;
  return TheSession().pinned().Register(p, bytesize, Flags, where.context, where.device);
}

CUresult cuMemHostUnregister(uint32_t, void* p) {
  if (!p) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = RequireContext()) return result;
  const auto block = TheSession().pinned().Find(p);
  if (!block || block->base != p || !block->registered)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (const CUresult result = WaitForCopies(*block)) return result;
  return TheSession().pinned().Unregister(p) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetFlags(uint32_t, unsigned int* pFlags, void* p) {
  if (!pFlags || !p) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = RequireContext()) return result;
  const auto block = TheSession().pinned().Find(p);
  if (!block || block->registered) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = block->flags;
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(uint32_t, CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  if (!pdptr || !p) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::check::cuMemHostGetDevicePointer_v2(Flags)) return result;
  if (const CUresult result = RequireContext()) return result;
  return TheSession().pinned().Find(p) ? RefuseMapping() : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace manual
}  // namespace smolvm::guest
