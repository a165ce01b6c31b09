// What a pointer is.
#include <cstring>

#include "host-daemon/emulation/api/api.h"

namespace smolvm::emulation {
namespace {

template <typename T>
CUresult Give(void* data, T value) {
  std::memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult AttributeOf(const Region& region, CUpointer_attribute attribute, CUdeviceptr address,
                     void* data) {
  const bool device = region.IsDevice();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Give(data, region.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Give(data, static_cast<unsigned>(device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      // Host memory is not mapped for the device.
      return device ? Give(data, address) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return device && !region.managed ? CUDA_ERROR_INVALID_VALUE
                                       : Give(data, reinterpret_cast<void*>(address));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Give(data, static_cast<unsigned>(region.sync_memops));
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Give(data, static_cast<unsigned long long>(region.id));
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Give(data, static_cast<unsigned>(region.managed));
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Give(data, 0u);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Give(data, kDevice);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Give(data, CUdeviceptr{region.base});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Give(data, region.size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Give(data, 1u);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Give(data, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Give(data, static_cast<unsigned>(device ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
                                                     : CU_POINTER_ATTRIBUTE_ACCESS_FLAG_NONE));
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Give(data, region.pool);
    default:
      return api::refuse::cuPointerGetAttribute(attribute);
  }
}

// What cuPointerGetAttributes gives for a pointer that CUDA does not know: documented as NULL, or
// as stated there.
CUresult AttributeOfUnknown(CUpointer_attribute attribute, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Give(data, uint64_t{0});
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Give(data, -2);  // the driver's value for "no device"
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Give(data, 0u);
    default:
      return api::refuse::cuPointerGetAttribute(attribute);
  }
}

}  // namespace

SMOLVM_API cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  SMOLVM_ENTER();
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuPointerGetAttribute(attribute));
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(address);
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AttributeOf(*region, attribute, address, data);
}

SMOLVM_API cuPointerGetAttributes(unsigned int count, CUpointer_attribute* attributes, void** data,
                                  CUdeviceptr address) {
  SMOLVM_ENTER();
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(address);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    SMOLVM_RETURN_IF_ERROR(api::check::cuPointerGetAttribute(attributes[i]));
    CUresult result = region == nullptr ? AttributeOfUnknown(attributes[i], data[i])
                                        : AttributeOf(*region, attributes[i], address, data[i]);
    // One that does not apply to this pointer is NULL here, not an error.
    if (result == CUDA_ERROR_INVALID_VALUE && region != nullptr)
      result = AttributeOfUnknown(attributes[i], data[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

SMOLVM_API cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                 CUdeviceptr address) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuPointerSetAttribute(attribute));
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(address);
  if (region == nullptr || !region->IsDevice()) return CUDA_ERROR_INVALID_VALUE;
  unsigned set = 0;
  std::memcpy(&set, value, sizeof(set));
  if (set > 1) return CUDA_ERROR_INVALID_VALUE;
  region->sync_memops = set != 0;
  if (const auto group = context->group(); set && group) group->WaitAll();
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
