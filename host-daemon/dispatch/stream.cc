// Stream attributes, and the block size that fits a kernel best.
#include <cstring>

#include "host-daemon/dispatch/dispatcher.h"
#include "protocol/api/host_manual.h"

namespace smolvm::dispatch {
namespace {

// Those whose values are numbers; an access policy window names memory by address.
bool AttributeIsPlain(uint32_t attribute) {
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return true;
    default:
      return false;
  }
}

}  // namespace

namespace manual {

uint32_t cuStreamGetAttribute(Dispatcher& d, session::Call& call,
                              const api::StreamGetAttributeRequest& in,
                              api::StreamGetAttributeReply* out) {
  const auto get = call.per_thread_stream() ? d.driver().cuStreamGetAttribute_ptsz
                                            : d.driver().cuStreamGetAttribute;
  if (!get) return d.NotInDriver("cuStreamGetAttribute");
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!AttributeIsPlain(in.attr)) return CUDA_ERROR_NOT_SUPPORTED;
  CUstreamAttrValue value{};
  if (const CUresult result = get(stream, static_cast<CUstreamAttrID>(in.attr), &value))
    return result;
  out->value.assign(reinterpret_cast<const char*>(&value), sizeof value);
  return CUDA_SUCCESS;
}

uint32_t cuStreamSetAttribute(Dispatcher& d, session::Call& call,
                              const api::StreamSetAttributeRequest& in, api::None*) {
  const auto set = call.per_thread_stream() ? d.driver().cuStreamSetAttribute_ptsz
                                            : d.driver().cuStreamSetAttribute;
  if (!set) return d.NotInDriver("cuStreamSetAttribute");
  CUstream stream = nullptr;
  if (!d.handles().Find(in.hStream, &stream)) return CUDA_ERROR_INVALID_HANDLE;
  if (!AttributeIsPlain(in.attr)) return CUDA_ERROR_NOT_SUPPORTED;
  CUstreamAttrValue value;
  if (in.value.size() != sizeof value) return session::Handler::kMalformed;
  memcpy(&value, in.value.data(), sizeof value);
  return set(stream, static_cast<CUstreamAttrID>(in.attr), &value);
}

uint32_t cuOccupancyMaxPotentialBlockSizeWithFlags(
    Dispatcher& d, session::Call&, const api::OccupancyMaxPotentialBlockSizeWithFlagsRequest& in,
    api::OccupancyMaxPotentialBlockSizeWithFlagsReply* out) {
  if (!d.driver().cuOccupancyMaxPotentialBlockSizeWithFlags) {
    return d.NotInDriver("cuOccupancyMaxPotentialBlockSizeWithFlags");
  }
  CUfunction function = nullptr;
  if (!d.handles().Find(in.func, &function)) return CUDA_ERROR_INVALID_HANDLE;
  int grid = 0, block = 0;
  if (const CUresult result = d.driver().cuOccupancyMaxPotentialBlockSizeWithFlags(
          &grid, &block, function, nullptr, in.dynamicSMemSize, in.blockSizeLimit, in.flags)) {
    return result;
  }
  out->minGridSize = grid;
  out->blockSize = block;
  return CUDA_SUCCESS;
}

}  // namespace manual
}  // namespace smolvm::dispatch
