#pragma once

#include <cuda.h>

#include <cstddef>
#include <vector>

namespace smolvm::guest {

// The longest image that is sent to the host: max_bulk of the calls that take one.
inline constexpr size_t kMaxImageBytes = size_t{2} << 30;

// A whole regular file, and a NUL behind it: as CUDA does, a file's PTX need not end with one.
// CUDA_ERROR_FILE_NOT_FOUND, or _INVALID_IMAGE for one that is longer than kMaxImageBytes.
CUresult ReadImageFile(const char* path, std::vector<char>* bytes);

}  // namespace smolvm::guest
