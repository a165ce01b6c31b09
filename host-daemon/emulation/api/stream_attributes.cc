// Stream attributes.
#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {
namespace {

CUresult Get(CUstream handle, CUstreamAttrID attribute, CUstreamAttrValue* value) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamGetAttribute(attribute));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  CUstreamAttrValue read = {};
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      read.syncPolicy = static_cast<CUsynchronizationPolicy>(stream->sync_policy.load());
      break;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      read.priority = stream->priority();
      break;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:  // there is no persisting cache: always empty
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:   // there is one domain, number 0
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  *value = read;
  return CUDA_SUCCESS;
}

CUresult Set(CUstream handle, CUstreamAttrID attribute, const CUstreamAttrValue* value) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuStreamGetAttribute(attribute));
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
      if (value->syncPolicy < CU_SYNC_POLICY_AUTO ||
          value->syncPolicy > CU_SYNC_POLICY_BLOCKING_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
      stream->sync_policy = value->syncPolicy;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
      if (value->priority < kGreatestStreamPriority || value->priority > kLeastStreamPriority)
        return CUDA_ERROR_INVALID_VALUE;
      stream->set_priority(value->priority);
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
      return value->accessPolicyWindow.num_bytes == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
      return value->memSyncDomainMap.default_ == 0 && value->memSyncDomainMap.remote == 0
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
      return value->memSyncDomain == CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult CopyAll(CUstream to_handle, CUstream from_handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Stream> to, from;
  SMOLVM_RETURN_IF_ERROR(FindStream(to_handle, &to));
  SMOLVM_RETURN_IF_ERROR(FindStream(from_handle, &from));
  // Documented: both streams are of one context.
  if (to->group().context_id() != from->group().context_id()) return CUDA_ERROR_INVALID_VALUE;
  to->sync_policy = from->sync_policy.load();
  to->set_priority(from->priority());
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuStreamGetAttribute(CUstream stream, CUstreamAttrID attribute,
                                CUstreamAttrValue* value) {
  return Get(Legacy(stream), attribute, value);
}
SMOLVM_API cuStreamGetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute,
                                     CUstreamAttrValue* value) {
  return Get(PerThread(stream), attribute, value);
}
SMOLVM_API cuStreamSetAttribute(CUstream stream, CUstreamAttrID attribute,
                                const CUstreamAttrValue* value) {
  return Set(Legacy(stream), attribute, value);
}
SMOLVM_API cuStreamSetAttribute_ptsz(CUstream stream, CUstreamAttrID attribute,
                                     const CUstreamAttrValue* value) {
  return Set(PerThread(stream), attribute, value);
}
SMOLVM_API cuStreamCopyAttributes(CUstream to, CUstream from) {
  return CopyAll(Legacy(to), Legacy(from));
}
SMOLVM_API cuStreamCopyAttributes_ptsz(CUstream to, CUstream from) {
  return CopyAll(PerThread(to), PerThread(from));
}

}  // namespace smolvm::emulation
