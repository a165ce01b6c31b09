// Pointer attributes and attributes of pools.
#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/attributes.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/memory.wire.h"
#include "protocol/api/memory_pool.wire.h"
#include "protocol/api/values.h"

namespace smolvm::guest {
namespace {

template <typename T>
CUresult Store(void* data, T value) {
  memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

// In the ids of page-locked memory, so that they are none of the host's.
constexpr uint64_t kPinnedId = uint64_t{1} << 63;

// Of page-locked memory, which only the guest knows.
CUresult PinnedAttribute(const PinnedBlock& block, void* data, CUpointer_attribute attribute,
                         CUdeviceptr ptr) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Store(data, block.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Store<unsigned>(data, CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return Store(data, reinterpret_cast<void*>(ptr));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Store<char>(data, 0);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Store<int>(data, block.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Store(data, reinterpret_cast<CUdeviceptr>(block.base));
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Store(data, block.size);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Store<char>(data, 0);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Store<char>(data, 1);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Store<unsigned>(data, 0);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store(data, reinterpret_cast<CUdeviceptr>(block.base));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store(data, block.size);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store<uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store<uint64_t>(data, kPinnedId | reinterpret_cast<uint64_t>(block.base));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store<void*>(data, nullptr);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return CUDA_ERROR_INVALID_VALUE;  // it is not mapped
    default:
      return api::refuse::cuPointerGetAttribute(attribute);
  }
}

// What cuPointerGetAttributes stores where an attribute does not apply (its documentation).
void StoreNone(void* data, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      Store<int>(data, CU_DEVICE_INVALID);
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      Store<unsigned>(data, 0);
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      Store<char>(data, 0);
      break;
    default:
      Store<void*>(data, nullptr);
      break;
  }
}

}  // namespace

namespace manual {

CUresult cuPointerGetAttribute(uint32_t variant, void* data, CUpointer_attribute attribute,
                               CUdeviceptr ptr) {
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::check::cuPointerGetAttribute(attribute)) return result;
  if (const auto block = TheSession().pinned().Find(reinterpret_cast<void*>(ptr))) {
    return PinnedAttribute(*block, data, attribute, ptr);
  }
  api::PointerGetAttributeReply reply;
  const api::PointerGetAttributeRequest request{static_cast<uint32_t>(attribute), ptr};
  if (const CUresult result = Ask(api::id::cuPointerGetAttribute, variant, request, &reply))
    return result;
  if (reply.data.size() > sizeof(uint64_t) || reply.data.empty()) return BadReply();
  memcpy(data, reply.data.data(), reply.data.size());
  if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    int ordinal = 0;
    memcpy(&ordinal, data, sizeof ordinal);
    return Store(data, ToGuestOrdinal(ordinal));
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttributes(uint32_t variant, unsigned int numAttributes,
                                CUpointer_attribute* attributes, void** data, CUdeviceptr ptr) {
  if (numAttributes == 0 || !attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (!data[i]) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = api::check::cuPointerGetAttribute(attributes[i])) return result;
    if (const CUresult result = api::refuse::cuPointerGetAttribute(attributes[i])) return result;
    const CUresult result = cuPointerGetAttribute(variant, data[i], attributes[i], ptr);
    if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED) {
      StoreNone(data[i], attributes[i]);
    } else if (result != CUDA_SUCCESS) {
      return result;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(uint32_t variant, const void* value, CUpointer_attribute attribute,
                               CUdeviceptr ptr) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = api::check::cuPointerSetAttribute(attribute)) return result;
  api::PointerSetAttributeRequest request{static_cast<uint32_t>(attribute), ptr, {}};
  request.value.assign(static_cast<const char*>(value), sizeof(unsigned));
  api::None none;
  return Ask(api::id::cuPointerSetAttribute, variant, request, &none);
}

CUresult cuMemPoolGetAttribute(uint32_t variant, CUmemoryPool pool, CUmemPool_attribute attr,
                               void* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  api::MemPoolGetAttributeReply reply;
  const api::MemPoolGetAttributeRequest request{reinterpret_cast<uint64_t>(pool),
                                                static_cast<uint32_t>(attr)};
  if (const CUresult result = Ask(api::id::cuMemPoolGetAttribute, variant, request, &reply))
    return result;
  return api::PoolAttributeIs64Bit(attr) ? Store<uint64_t>(value, reply.value)
                                         : Store(value, static_cast<int>(reply.value));
}

CUresult cuMemPoolSetAttribute(uint32_t variant, CUmemoryPool pool, CUmemPool_attribute attr,
                               void* value) {
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  api::MemPoolSetAttributeRequest request{reinterpret_cast<uint64_t>(pool),
                                          static_cast<uint32_t>(attr), 0};
  memcpy(&request.value, value, api::PoolAttributeIs64Bit(attr) ? sizeof(uint64_t) : sizeof(int));
  api::None none;
  return Ask(api::id::cuMemPoolSetAttribute, variant, request, &none);
}

}  // namespace manual
}  // namespace smolvm::guest
