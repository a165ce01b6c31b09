// What CUfunction_attribute says of a kernel, for cuFunc* and cuKernel* alike.
#pragma once

#include <cuda.h>

#include "host-daemon/emulation/api/module.h"

namespace smolvm::emulation {

CUresult GetFunctionAttribute(const KernelInfo& info, const FunctionSettings& settings,
                              CUfunction_attribute attribute, int* value);
CUresult SetFunctionAttribute(const KernelInfo& info, FunctionSettings* settings,
                              CUfunction_attribute attribute, int value);
// CUDA_ERROR_INVALID_VALUE when there is no such parameter. `size` may be null.
CUresult ParamInfoOf(const KernelInfo& info, size_t index, size_t* offset, size_t* size);

// The most dynamic shared memory that a launch of the kernel may ask for.
int MaxDynamicShared(const KernelInfo& info, const FunctionSettings& settings);

}  // namespace smolvm::emulation
