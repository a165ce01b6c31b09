// Initialisation, versions, errors and the way to other entry points.
#include "host-daemon/emulation/api/api.h"
#include "protocol/gen/exports/error_names.h"
#include "protocol/gen/exports/proc_address.h"
#include "protocol/gen/exports/unsupported.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {

SMOLVM_API cuInit(unsigned int flags) { return Initialise(flags); }

SMOLVM_API cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

SMOLVM_API cuGetErrorName(CUresult error, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = exports::ErrorName(error);
  return *name == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SMOLVM_API cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *text = exports::ErrorString(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

SMOLVM_API cuGetProcAddress(const char* symbol, void** pfn, int version, cuuint64_t flags) {
  return static_cast<CUresult>(
      exports::GetProcAddressV1(symbol, pfn, version, CUDA_VERSION, flags));
}

SMOLVM_API cuGetProcAddress_v2(const char* symbol, void** pfn, int version, cuuint64_t flags,
                               CUdriverProcAddressQueryResult* status) {
  int found = 0;
  const int result = exports::GetProcAddressV2(symbol, pfn, version, CUDA_VERSION, flags, &found);
  if (status != nullptr && result == 0)
    *status = static_cast<CUdriverProcAddressQueryResult>(found);
  return static_cast<CUresult>(result);
}

// No export table is offered: all of them are private to NVIDIA's own libraries.
SMOLVM_API cuGetExportTable(const void** table, const CUuuid* id) {
  if (table == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *table = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}

SMOLVM_API cuProfilerStart() {
  SMOLVM_ENTER();
  return CUDA_SUCCESS;
}

SMOLVM_API cuProfilerStop() {
  SMOLVM_ENTER();
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
