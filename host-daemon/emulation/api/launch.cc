#include "host-daemon/emulation/api/launch.h"

#include <algorithm>
#include <cstring>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/function_attributes.h"
#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {
namespace {

bool WithinLimits(const unsigned (&dimensions)[3], const int (&most)[3]) {
  for (int i = 0; i < 3; ++i)
    if (dimensions[i] == 0 || dimensions[i] > static_cast<unsigned>(most[i])) return false;
  return true;
}

CUresult CheckCooperative(const LaunchShape& shape, const KernelInfo& info, int threads) {
  int blocks = 0;
  SMOLVM_RETURN_IF_ERROR(ActiveBlocks(info, threads, shape.shared_bytes, &blocks));
  const uint64_t most = static_cast<uint64_t>(blocks) * MultiprocessorCount();
  const uint64_t plane = uint64_t{shape.grid[0]} * shape.grid[1];
  return plane > most || plane * shape.grid[2] > most ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
                                                      : CUDA_SUCCESS;
}

CUresult PackExtra(const KernelInfo& info, void** extra, std::vector<std::byte>* packed) {
  const void* buffer = nullptr;
  size_t bytes = 0;
  for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1] != nullptr) {
      std::memcpy(&bytes, extra[1], sizeof(bytes));
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (info.param_bytes == 0) return CUDA_SUCCESS;
  if (buffer == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Documented at CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: arguments of the wrong size. Padding behind
  // the last is common.
  if (bytes < info.param_bytes || bytes > kMaxParamBytes) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  std::memcpy(packed->data(), buffer, info.param_bytes);
  return CUDA_SUCCESS;
}

bool IsOne(unsigned x, unsigned y, unsigned z) { return x == 1 && y == 1 && z == 1; }

CUresult ReadAttribute(const CUlaunchAttribute& attribute, LaunchExtras* extras) {
  const CUlaunchAttributeValue& value = attribute.value;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      extras->cooperative = value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      return IsOne(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_NOT_SUPPORTED;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      return IsOne(value.preferredClusterDim.x, value.preferredClusterDim.y,
                   value.preferredClusterDim.z)
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_NOT_SUPPORTED;
    // Both events may fire late: "best effort", and never before what they promise.
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      extras->events.push_back(value.programmaticEvent.event);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      extras->events.push_back(value.launchCompletionEvent.event);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      if (value.priority > kLeastStreamPriority || value.priority < kGreatestStreamPriority)
        return CUDA_ERROR_INVALID_VALUE;
      extras->priority = value.priority;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return value.accessPolicyWindow.num_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return value.memSyncDomainMap.default_ == 0 && value.memSyncDomainMap.remote == 0
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return value.memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ? CUDA_SUCCESS
                                                                      : CUDA_ERROR_NOT_SUPPORTED;
    // Hints, and an overlap that is only ever permitted.
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      return CUDA_ERROR_INVALID_VALUE;  // documented: of streams only
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

}  // namespace

CUresult CheckShape(const LaunchShape& shape, const Function& function) {
  const KernelInfo& info = function.info();
  if (!WithinLimits(shape.grid, kMaxGridDim) || !WithinLimits(shape.block, kMaxBlockDim))
    return CUDA_ERROR_INVALID_VALUE;
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  if (threads > kMaxThreadsPerBlock) return CUDA_ERROR_INVALID_VALUE;
  if (threads > static_cast<uint64_t>(info.max_threads_per_block))
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  if (info.required_block[0] != 0 && !std::equal(shape.block, shape.block + 3, info.required_block))
    return CUDA_ERROR_INVALID_VALUE;
  if (shape.shared_bytes > static_cast<unsigned>(MaxDynamicShared(info, function.settings)))
    return CUDA_ERROR_INVALID_VALUE;
  return shape.cooperative ? CheckCooperative(shape, info, static_cast<int>(threads))
                           : CUDA_SUCCESS;
}

CUresult PackParams(const KernelInfo& info, void** params, void** extra,
                    std::vector<std::byte>* packed) {
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  packed->resize(info.param_bytes);
  if (extra != nullptr) return PackExtra(info, extra, packed);
  if (params == nullptr) return info.params.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < info.params.size(); ++i) {
    if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memcpy(packed->data() + info.params[i].offset, params[i], info.params[i].size);
  }
  return CUDA_SUCCESS;
}

CUresult ReadLaunchAttributes(const CUlaunchConfig& config, LaunchExtras* extras) {
  if (config.numAttrs != 0 && config.attrs == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < config.numAttrs; ++i)
    SMOLVM_RETURN_IF_ERROR(ReadAttribute(config.attrs[i], extras));
  return CUDA_SUCCESS;
}

CUresult ActiveBlocks(const KernelInfo& info, int block_threads, size_t dynamic_shared,
                      int* blocks) {
  if (block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = 0;
  if (block_threads > info.max_threads_per_block) return CUDA_SUCCESS;
  if (dynamic_shared > kSharedPerBlockOptIn) return CUDA_SUCCESS;
  const size_t shared = info.static_shared_bytes + dynamic_shared;
  if (shared > kSharedPerBlockOptIn) return CUDA_SUCCESS;
  const int warps = (block_threads + kWarpSize - 1) / kWarpSize;
  int most =
      std::min(kMaxBlocksPerMultiprocessor, kMaxThreadsPerMultiprocessor / (warps * kWarpSize));
  most =
      std::min(most, kSharedPerMultiprocessor / static_cast<int>(shared + kSharedReservedPerBlock));
  if (info.num_regs > 0) {
    const int warp_registers =
        (info.num_regs * kWarpSize + kRegisterUnit - 1) / kRegisterUnit * kRegisterUnit;
    most = std::min(most, kRegistersPerMultiprocessor / (warp_registers * warps));
  }
  *blocks = most;
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
