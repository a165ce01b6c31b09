// Stream attributes, and the block size that fits a kernel best.
#include <algorithm>

#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/module.wire.h"
#include "protocol/api/occupancy.wire.h"
#include "protocol/api/stream.wire.h"

namespace smolvm::guest {
namespace {

// With a size callback, shared memory depends on the block size, so each size is tried: whole
// warps and the limit itself, largest first; the one that keeps most threads resident wins
// (cuOccupancyMaxPotentialBlockSize's documentation).
CUresult SearchBlockSize(int* minGridSize, int* blockSize, CUfunction func,
                         CUoccupancyB2DSize size_of, int limit, unsigned flags) {
  api::FuncGetAttributeReply most;
  const auto id = reinterpret_cast<uint64_t>(func);
  if (const CUresult result =
          Ask(api::id::cuFuncGetAttribute, kNoVariant,
              api::FuncGetAttributeRequest{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, id}, &most)) {
    return result;
  }
  CUdevice device = 0;
  int warp = 32, processors = 1, best_threads = 0;
  api::None none;
  manual::cuDeviceGetAttribute(kNoVariant, &warp, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device);
  manual::cuDeviceGetAttribute(kNoVariant, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                               device);
  const int largest = limit > 0 ? std::min(limit, most.pi) : most.pi;
  *minGridSize = *blockSize = 0;
  for (int warps = (largest + warp - 1) / warp; warps > 0; --warps) {
    const int size = std::min(warps * warp, largest);
    api::OccupancyMaxActiveBlocksPerMultiprocessorWithFlagsReply reply;
    const CUresult result =
        Ask(api::id::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, kNoVariant,
            api::OccupancyMaxActiveBlocksPerMultiprocessorWithFlagsRequest{id, size, size_of(size),
                                                                           flags},
            &reply);
    if (result != CUDA_SUCCESS) return result;
    if (reply.numBlocks * size <= best_threads) continue;
    best_threads = reply.numBlocks * size;
    *blockSize = size;
    *minGridSize = reply.numBlocks * processors;
  }
  return CUDA_SUCCESS;
}

}  // namespace

namespace manual {

CUresult cuStreamGetAttribute(uint32_t variant, CUstream hStream, CUstreamAttrID attr,
                              CUstreamAttrValue* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  api::StreamGetAttributeReply reply;
  const api::StreamGetAttributeRequest request{reinterpret_cast<uint64_t>(hStream),
                                               static_cast<uint32_t>(attr)};
  if (const CUresult result = Ask(api::id::cuStreamGetAttribute, variant, request, &reply))
    return result;
  if (reply.value.size() != sizeof *value) return BadReply();
  memcpy(value, reply.value.data(), sizeof *value);
  return CUDA_SUCCESS;
}

CUresult cuStreamSetAttribute(uint32_t variant, CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue* param) {
  if (!param) return CUDA_ERROR_INVALID_VALUE;
  api::StreamSetAttributeRequest request{
      reinterpret_cast<uint64_t>(hStream), static_cast<uint32_t>(attr), {}};
  request.value.assign(reinterpret_cast<const char*>(param), sizeof *param);
  api::None none;
  return Ask(api::id::cuStreamSetAttribute, variant, request, &none);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(uint32_t variant, int* minGridSize,
                                                   int* blockSize, CUfunction func,
                                                   CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                   size_t dynamicSMemSize, int blockSizeLimit,
                                                   unsigned int flags) {
  if (!minGridSize || !blockSize || blockSizeLimit < 0) return CUDA_ERROR_INVALID_VALUE;
  if (blockSizeToDynamicSMemSize) {
    return SearchBlockSize(minGridSize, blockSize, func, blockSizeToDynamicSMemSize, blockSizeLimit,
                           flags);
  }
  api::OccupancyMaxPotentialBlockSizeWithFlagsReply reply;
  const api::OccupancyMaxPotentialBlockSizeWithFlagsRequest request{
      dynamicSMemSize, blockSizeLimit, flags, reinterpret_cast<uint64_t>(func)};
  if (const CUresult result =
          Ask(api::id::cuOccupancyMaxPotentialBlockSizeWithFlags, variant, request, &reply)) {
    return result;
  }
  *minGridSize = reply.minGridSize;
  *blockSize = reply.blockSize;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(uint32_t variant, int* minGridSize, int* blockSize,
                                          CUfunction func,
                                          CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                          size_t dynamicSMemSize, int blockSizeLimit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(variant, minGridSize, blockSize, func,
                                                   blockSizeToDynamicSMemSize, dynamicSMemSize,
                                                   blockSizeLimit, CU_OCCUPANCY_DEFAULT);
}

}  // namespace manual
}  // namespace smolvm::guest
