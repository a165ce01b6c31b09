#include "host-daemon/emulation/api/api.h"

namespace smolvm::emulation {
namespace {

CUresult Release(CUdevice device) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return TheDriver().primary.Release();
}

CUresult Reset(CUdevice device) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return TheDriver().primary.Reset();
}

CUresult SetFlags(CUdevice device, unsigned flags) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return TheDriver().primary.SetFlags(flags);
}

}  // namespace

SMOLVM_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  SMOLVM_ENTER();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *context = reinterpret_cast<CUcontext>(TheDriver().primary.Retain().get());
  return CUDA_SUCCESS;
}

SMOLVM_API cuDevicePrimaryCtxRelease_v2(CUdevice device) { return Release(device); }
SMOLVM_API cuDevicePrimaryCtxRelease(CUdevice device) { return Release(device); }
SMOLVM_API cuDevicePrimaryCtxReset_v2(CUdevice device) { return Reset(device); }
SMOLVM_API cuDevicePrimaryCtxReset(CUdevice device) { return Reset(device); }

SMOLVM_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  return SetFlags(device, flags);
}
SMOLVM_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags) {
  return SetFlags(device, flags);
}

SMOLVM_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  SMOLVM_ENTER();
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  bool is_active = false;
  TheDriver().primary.GetState(flags, &is_active);
  *active = is_active;
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
