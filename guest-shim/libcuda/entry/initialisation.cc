// cuInit, versions, error names, and how programs find entry points.
#include <algorithm>

#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/values.h"
#include "protocol/gen/exports/error_names.h"
#include "protocol/gen/exports/proc_address.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

// The driver's version, as far as this library and the host both go.
int Version() {
  const Session* session = CurrentSession();
  return session ? std::min(CUDA_VERSION, session->hello().driver_version) : CUDA_VERSION;
}

// NVIDIA's own runtime library asks for this table and checks a keyed answer, which is not ours to
// give.
bool IsRuntimeHandshake(const CUuuid& id) {
  static constexpr unsigned char kTable[16] = {0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b,
                                               0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2};
  return memcmp(id.bytes, kTable, sizeof kTable) == 0;
}

}  // namespace

namespace manual {

CUresult cuInit(uint32_t, unsigned int Flags) {
  if (const CUresult result = api::check::cuInit(Flags)) return result;
  if (CurrentLane().in_callback) return CUDA_ERROR_NOT_PERMITTED;
  return InitialiseSession();
}

CUresult cuDriverGetVersion(uint32_t, int* driverVersion) {
  if (!driverVersion) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = Version();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(uint32_t, CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = exports::ErrorName(error);
  return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(uint32_t, CUresult error, const char** pStr) {
  if (!pStr) return CUDA_ERROR_INVALID_VALUE;
  *pStr = exports::ErrorString(error);
  return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetProcAddress(uint32_t, const char* symbol, void** pfn, int cudaVersion,
                          cuuint64_t flags) {
  return static_cast<CUresult>(
      exports::GetProcAddressV1(symbol, pfn, cudaVersion, Version(), flags));
}

CUresult cuGetProcAddress_v2(uint32_t, const char* symbol, void** pfn, int cudaVersion,
                             cuuint64_t flags, CUdriverProcAddressQueryResult* symbolStatus) {
  int status = 0;
  const int result = exports::GetProcAddressV2(symbol, pfn, cudaVersion, Version(), flags, &status);
  if (symbolStatus && result == CUDA_SUCCESS)
    *symbolStatus = static_cast<CUdriverProcAddressQueryResult>(status);
  return static_cast<CUresult>(result);
}

CUresult cuGetExportTable(uint32_t, const void** ppExportTable, const CUuuid* pExportTableId) {
  if (!ppExportTable || !pExportTableId) return CUDA_ERROR_INVALID_VALUE;
  *ppExportTable = nullptr;
  static std::atomic<bool> told{false};
  if (IsRuntimeHandshake(*pExportTableId) && !told.exchange(true)) {
    log::Error(
        "event=nvidia_runtime hint=\"NVIDIA's libcudart runs on NVIDIA's driver only; rebuild with "
        "NVCC_APPEND_FLAGS='-cudart shared'\"");
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace manual
}  // namespace smolvm::guest
