#include <algorithm>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/launch.h"
#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {
namespace {

CUresult BlocksPerMultiprocessor(int* blocks, CUfunction handle, int block_threads, size_t shared,
                                 unsigned flags) {
  SMOLVM_ENTER();
  if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  return ActiveBlocks(function->info(), block_threads, shared, blocks);
}

// The block size, of whole warps, with the most resident threads; the largest of several.
CUresult PotentialBlock(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize size_of,
                        size_t shared, int limit, unsigned flags) {
  SMOLVM_ENTER();
  if (grid == nullptr || block == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuOccupancyMaxPotentialBlockSizeWithFlags(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  const KernelInfo& info = function->info();
  const int most =
      limit == 0 ? info.max_threads_per_block : std::min(limit, info.max_threads_per_block);
  int best_threads = 0;
  *grid = *block = 0;
  for (int size = (most + kWarpSize - 1) / kWarpSize * kWarpSize; size > 0; size -= kWarpSize) {
    const int threads = std::min(size, most);
    int blocks = 0;
    SMOLVM_RETURN_IF_ERROR(
        ActiveBlocks(info, threads, size_of != nullptr ? size_of(threads) : shared, &blocks));
    if (blocks * threads <= best_threads) continue;
    best_threads = blocks * threads;
    *block = threads;
    *grid = blocks * MultiprocessorCount();
  }
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction f, int threads,
                                                       size_t shared) {
  return BlocksPerMultiprocessor(blocks, f, threads, shared, 0);
}
SMOLVM_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction f,
                                                                int threads, size_t shared,
                                                                unsigned int flags) {
  return BlocksPerMultiprocessor(blocks, f, threads, shared, flags);
}

SMOLVM_API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction f,
                                            CUoccupancyB2DSize size_of, size_t shared, int limit) {
  return PotentialBlock(grid, block, f, size_of, shared, limit, 0);
}
SMOLVM_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* block, CUfunction f,
                                                     CUoccupancyB2DSize size_of, size_t shared,
                                                     int limit, unsigned int flags) {
  return PotentialBlock(grid, block, f, size_of, shared, limit, flags);
}

SMOLVM_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks,
                                                   int threads) {
  SMOLVM_ENTER();
  if (bytes == nullptr || blocks <= 0 || threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  const KernelInfo& info = function->info();
  int fitting = 0;
  SMOLVM_RETURN_IF_ERROR(ActiveBlocks(info, threads, 0, &fitting));
  if (fitting < blocks) return CUDA_ERROR_INVALID_VALUE;
  const int each = kSharedPerMultiprocessor / blocks - kSharedReservedPerBlock -
                   static_cast<int>(info.static_shared_bytes);
  *bytes = static_cast<size_t>(
      std::clamp(each, 0, kSharedPerBlockOptIn - static_cast<int>(info.static_shared_bytes)));
  return CUDA_SUCCESS;
}

// CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH is 0.
SMOLVM_API cuOccupancyMaxPotentialClusterSize(int* size, CUfunction, const CUlaunchConfig* config) {
  SMOLVM_ENTER();
  if (size == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}
SMOLVM_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig* config) {
  SMOLVM_ENTER();
  if (clusters == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace smolvm::emulation
