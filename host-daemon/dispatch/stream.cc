// Stream attributes, and the block size that fits a kernel best.
#include <cstring>

#include "host-daemon/dispatch/dispatcher.h"
#include "protocol/api/host_manual.h"
#include "protocol/api/values.h"

namespace smolvm::dispatch {
namespace {

// An access policy window names memory by address: only an empty one is let through.
CUresult CheckAttribute(CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  if (const CUresult result = api::check::cuStreamSetAttribute(attribute)) return result;
  const bool window = attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW;
  return window && value && value->accessPolicyWindow.num_bytes != 0 ? CUDA_ERROR_NOT_SUPPORTED
                                                                     : CUDA_SUCCESS;
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
  const auto attribute = static_cast<CUstreamAttrID>(in.attr);
  if (const CUresult result = CheckAttribute(attribute, nullptr)) return result;
  CUstreamAttrValue value{};
  if (const CUresult result = get(stream, attribute, &value)) return result;
  if (const CUresult result = CheckAttribute(attribute, &value)) return result;
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
  CUstreamAttrValue value;
  if (in.value.size() != sizeof value) return session::Handler::kMalformed;
  memcpy(&value, in.value.data(), sizeof value);
  const auto attribute = static_cast<CUstreamAttrID>(in.attr);
  if (const CUresult result = CheckAttribute(attribute, &value)) return result;
  if (attribute == CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW) value = {};
  return set(stream, attribute, &value);
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
