// What both ends must think alike of CUDA's attributes and options.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace smolvm::api {

// Attributes of pools are int or cuuint64_t (CUmemPool_attribute's documentation).
inline bool PoolAttributeIs64Bit(uint32_t attribute) {
  return attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
}

// Options whose values are addresses in the program, which mean nothing elsewhere: they are refused
// in the guest, and by a host that gets them nevertheless. Log buffers stay in the guest; their
// sizes cross.
inline bool JitOptionIsAddress(uint32_t option) {
  switch (option) {
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
      return true;
    default:
      return false;
  }
}

// Options of a whole link, which cuLinkAddData and cuLinkAddFile document as refused for an input.
inline bool JitOptionIsOfAWholeLink(uint32_t option) {
  switch (option) {
    case CU_JIT_WALL_TIME:
    case CU_JIT_INFO_LOG_BUFFER:
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_ERROR_LOG_BUFFER:
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
    case CU_JIT_TARGET_FROM_CUCONTEXT:
    case CU_JIT_TARGET:
      return true;
    default:
      return false;
  }
}

}  // namespace smolvm::api
