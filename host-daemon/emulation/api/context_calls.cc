#include <algorithm>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/device/attributes.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {
namespace {

CUcontext HandleOf(const std::shared_ptr<Context>& context) {
  return reinterpret_cast<CUcontext>(context.get());
}

CUresult Create(CUcontext* handle, unsigned flags, CUdevice device) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  SMOLVM_RETURN_IF_ERROR(CheckContextFlags(flags));
  auto context = std::make_shared<Context>(false, flags);
  context->Begin();
  *handle = TheDriver().contexts.Add(context);
  ThisThread().stack.push_back(std::move(context));
  return CUDA_SUCCESS;
}

void End(const std::shared_ptr<Context>& context) {
  TheDriver().contexts.Remove(HandleOf(context));
  context->End();
}

CUresult Destroy(CUcontext handle) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto context = TheDriver().contexts.Find(handle);
  if (context == nullptr || context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = ThisThread().stack;
  if (!stack.empty() && stack.back() == context) stack.pop_back();
  End(context);
  return CUDA_SUCCESS;
}

CUresult Push(CUcontext handle) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  ThisThread().stack.push_back(std::move(context));
  return CUDA_SUCCESS;
}

CUresult Pop(CUcontext* handle) {
  SMOLVM_ENTER();
  auto& stack = ThisThread().stack;
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (handle != nullptr) *handle = HandleOf(stack.back());
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult Synchronize(const std::shared_ptr<Context>& context) {
  const auto group = context->group();
  if (group == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  group->WaitAll();
  FlushDeviceOutput();
  return static_cast<CUresult>(group->fault());
}

}  // namespace

// A CIG context shares the device with a graphics API; execution affinity needs multi-process
// service.
SMOLVM_API cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned int flags,
                          CUdevice device) {
  SMOLVM_ENTER();
  if (params != nullptr && (params->numExecAffinityParams != 0 || params->cigParams != nullptr))
    return CUDA_ERROR_NOT_SUPPORTED;
  return Create(context, flags, device);
}

SMOLVM_API cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count,
                          unsigned int flags, CUdevice device) {
  SMOLVM_ENTER();
  if (count < 0 || (count > 0) != (params != nullptr)) return CUDA_ERROR_INVALID_VALUE;
  if (count != 0) return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
  return Create(context, flags, device);
}

SMOLVM_API cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device) {
  return Create(context, flags, device);
}
SMOLVM_API cuCtxCreate(CUcontext* context, unsigned int flags, CUdevice device) {
  return Create(context, flags, device);
}

SMOLVM_API cuCtxDestroy_v2(CUcontext context) { return Destroy(context); }
SMOLVM_API cuCtxDestroy(CUcontext context) { return Destroy(context); }
SMOLVM_API cuCtxPushCurrent_v2(CUcontext context) { return Push(context); }
SMOLVM_API cuCtxPushCurrent(CUcontext context) { return Push(context); }
SMOLVM_API cuCtxPopCurrent_v2(CUcontext* context) { return Pop(context); }
SMOLVM_API cuCtxPopCurrent(CUcontext* context) { return Pop(context); }

// NULL pops the current context.
SMOLVM_API cuCtxSetCurrent(CUcontext handle) {
  SMOLVM_ENTER();
  auto& stack = ThisThread().stack;
  if (handle == nullptr) {
    if (!stack.empty()) stack.pop_back();
    return CUDA_SUCCESS;
  }
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  if (stack.empty()) {
    stack.push_back(std::move(context));
  } else {
    stack.back() = std::move(context);
  }
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetCurrent(CUcontext* handle) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = ThisThread().stack;
  *handle = stack.empty() ? nullptr : HandleOf(stack.back());
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetDevice(CUdevice* device) {
  SMOLVM_ENTER();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  *device = kDevice;
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetDevice_v2(CUdevice* device, CUcontext handle) {
  SMOLVM_ENTER();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  *device = kDevice;
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetFlags(unsigned int* flags) {
  SMOLVM_ENTER();
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  *flags = context->flags();
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxSetFlags(unsigned int flags) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  SMOLVM_RETURN_IF_ERROR(CheckContextFlags(flags));
  context->set_flags(flags);
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetId(CUcontext handle, unsigned long long* id) {
  SMOLVM_ENTER();
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  *id = context->id();
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxSynchronize() {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  return Synchronize(context->shared_from_this());
}

SMOLVM_API cuCtxSynchronize_v2(CUcontext handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  return Synchronize(context);
}

SMOLVM_API cuCtxGetLimit(size_t* value, CUlimit limit) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  return context->GetLimit(limit, value);
}

SMOLVM_API cuCtxSetLimit(CUlimit limit, size_t value) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  return context->SetLimit(limit, value);
}

SMOLVM_API cuCtxGetCacheConfig(CUfunc_cache* config) {
  SMOLVM_ENTER();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  *config = context->cache_config();
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxSetCacheConfig(CUfunc_cache config) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuCtxSetCacheConfig(config));
  SMOLVM_CURRENT_CONTEXT(context);
  context->set_cache_config(config);
  return CUDA_SUCCESS;
}

// Deprecated, and of no effect on devices of a capability above 3: the bank size is four bytes.
SMOLVM_API cuCtxGetSharedMemConfig(CUsharedconfig* config) {
  SMOLVM_ENTER();
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  *config = CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE;
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxSetSharedMemConfig(CUsharedconfig config) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuCtxSetSharedMemConfig(config));
  SMOLVM_CURRENT_CONTEXT(context);
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetApiVersion(CUcontext handle, unsigned int* version) {
  SMOLVM_ENTER();
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  SMOLVM_RETURN_IF_ERROR(FindContext(handle, &context));
  *version = 3020;  // the version of cuCtxCreate_v2's contexts, which all later ones are
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  if (least != nullptr) *least = kLeastStreamPriority;
  if (greatest != nullptr) *greatest = kGreatestStreamPriority;
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxResetPersistingL2Cache() {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  return CUDA_SUCCESS;  // no line is ever persisting
}

SMOLVM_API cuCtxGetExecAffinity(CUexecAffinityParam* affinity, CUexecAffinityType type) {
  SMOLVM_ENTER();
  if (affinity == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuCtxGetExecAffinity(type));
  SMOLVM_CURRENT_CONTEXT(context);
  return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

SMOLVM_API cuCtxAttach(CUcontext* handle, unsigned int flags) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuCtxAttach(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  if (context->primary()) return CUDA_ERROR_INVALID_CONTEXT;
  context->attach_count.fetch_add(1);
  *handle = context->handle();
  return CUDA_SUCCESS;
}

SMOLVM_API cuCtxDetach(CUcontext handle) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(current);
  if (handle != current->handle() || current->primary()) return CUDA_ERROR_INVALID_CONTEXT;
  if (current->attach_count.fetch_sub(1) == 1) return Destroy(handle);
  return CUDA_SUCCESS;
}

// There is no second device whose context could be a peer.
SMOLVM_API cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuCtxEnablePeerAccess(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Context> found;
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  SMOLVM_RETURN_IF_ERROR(FindContext(peer, &found));
  return CUDA_ERROR_INVALID_DEVICE;
}

SMOLVM_API cuCtxDisablePeerAccess(CUcontext peer) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Context> found;
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  SMOLVM_RETURN_IF_ERROR(FindContext(peer, &found));
  return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

}  // namespace smolvm::emulation
