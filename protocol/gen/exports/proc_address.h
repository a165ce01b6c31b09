// How cuGetProcAddress finds a function: by base name, CUDA version and default-stream variant.
//
// Shared by everything that stands in for libcuda.so.1. Documented with cuGetProcAddress in the
// CUDA driver API reference; what the documentation leaves open follows the driver: suffixed names
// (cuMemAlloc_v2) are not found, flags above 3 are invalid. What is exported is found, as by dlsym,
// whether it is served or answers CUDA_ERROR_NOT_SUPPORTED.
#pragma once

#include <cstdint>
#include <string_view>

namespace smolvm::exports {

// The values of CUdriverProcAddressQueryResult.
enum class ProcStatus { kFound = 0, kNotFound = 1, kVersionNotSufficient = 2 };

struct ProcLookup {
  ProcStatus status;
  const char* symbol;  // the exported name; null unless found
};

// `flags` are CUdriverProcAddress_flags. With CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM a
// per-thread variant wins, where there is one of that version or older; a function without one is
// found as ever.
ProcLookup FindProc(std::string_view name, int version, uint64_t flags);

// The whole of cuGetProcAddress and cuGetProcAddress_v2, with their results as CUresult values, for
// a driver of version `driver`: one that is asked for a later version refuses. Neither needs
// cuInit. v2: an unknown name, or a version too low, is 0 with *pfn null and the status set.
// `status` may be null.
int GetProcAddressV1(const char* name, void** pfn, int version, int driver, uint64_t flags);
int GetProcAddressV2(const char* name, void** pfn, int version, int driver, uint64_t flags,
                     int* status);

}  // namespace smolvm::exports
