// What every file of the driver API's entry points includes.
//
// Entry points check in the order: initialised, pointers given, a usable current context, handles,
// values. CUDA does not document an order; this one tells a program about its own mistake before it
// tells it about state.
#pragma once

#include <cuda.h>

#include "host-daemon/emulation/api/driver.h"
#include "protocol/api/values.h"

// A function that the library exports. Prototypes come from cuda.h, so a wrong signature does not
// compile.
#define SMOLVM_API extern "C" __attribute__((visibility("default"))) CUresult

#define SMOLVM_RETURN_IF_ERROR(expression)                                              \
  do {                                                                                  \
    if (const CUresult result_ = (expression); result_ != CUDA_SUCCESS) return result_; \
  } while (0)

// At the head of every entry point but those few that work before cuInit.
#define SMOLVM_ENTER() SMOLVM_RETURN_IF_ERROR(::smolvm::emulation::Ready())
// Declares `name`, the calling thread's current context.
#define SMOLVM_CURRENT_CONTEXT(name) \
  Context* name = nullptr;           \
  SMOLVM_RETURN_IF_ERROR(CurrentContext(&(name)))

namespace smolvm::emulation {

// What a NULL stream means to an entry point of each kind.
inline CUstream Legacy(CUstream stream) { return stream == nullptr ? CU_STREAM_LEGACY : stream; }
inline CUstream PerThread(CUstream stream) {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}

}  // namespace smolvm::emulation
