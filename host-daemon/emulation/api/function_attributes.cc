#include "host-daemon/emulation/api/function_attributes.h"

#include <algorithm>

#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {

int MaxDynamicShared(const KernelInfo& info, const FunctionSettings& settings) {
  const int set = settings.max_dynamic_shared.load(std::memory_order_relaxed);
  return set >= 0 ? set : std::max(0, kSharedPerBlock - static_cast<int>(info.static_shared_bytes));
}

CUresult GetFunctionAttribute(const KernelInfo& info, const FunctionSettings& settings,
                              CUfunction_attribute attribute, int* value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = info.max_threads_per_block;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      *value = static_cast<int>(info.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      *value = static_cast<int>(info.const_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      *value = static_cast<int>(info.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = info.num_regs;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      *value = info.ptx_version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = info.binary_version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      *value = MaxDynamicShared(info, settings);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      *value = settings.carveout;
      return CUDA_SUCCESS;
    default:
      // Cache modes and clusters: there are none.
      *value = 0;
      return CUDA_SUCCESS;
  }
}

CUresult SetFunctionAttribute(const KernelInfo& info, FunctionSettings* settings,
                              CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: {
      const int most = kSharedPerBlockOptIn - static_cast<int>(info.static_shared_bytes);
      if (value < 0 || value > most) return CUDA_ERROR_INVALID_VALUE;
      settings->max_dynamic_shared = value;
      return CUDA_SUCCESS;
    }
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings->carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return value == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;  // the others can only be read
  }
}

CUresult ParamInfoOf(const KernelInfo& info, size_t index, size_t* offset, size_t* size) {
  if (index >= info.params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset = info.params[index].offset;
  if (size != nullptr) *size = info.params[index].size;
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
