// The name and the description of every CUresult, for whatever stands in for libcuda.so.1.
#pragma once

namespace smolvm::exports {

// "CUDA_ERROR_INVALID_VALUE"; null when `result` is no CUresult of CUDA 13.0.
const char* ErrorName(int result);
// "invalid argument"; null likewise.
const char* ErrorString(int result);

}  // namespace smolvm::exports
