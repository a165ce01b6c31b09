// Memory: what the session may have, pointer attributes, pools.
#include <cstring>
#include <span>

#include "host-daemon/dispatch/dispatcher.h"
#include "protocol/api/attributes.h"
#include "protocol/api/host_manual.h"
#include "protocol/api/values.h"

namespace smolvm::dispatch {
namespace {

// Bytes that cuPointerGetAttribute writes, by the type that cuda.h documents for each attribute; 0:
// refused.
size_t PointerAttributeBytes(uint32_t attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return 4;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return 1;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return 8;
    default:  // P2P_TOKENS: for kernel drivers of the host. HOST_POINTER: an address of the
              // worker's.
      return 0;
  }
}

}  // namespace

namespace manual {

uint32_t cuMemGetInfo_v2(Dispatcher& d, session::Call&, const api::None&,
                         api::MemGetInfoV2Reply* out) {
  if (!d.driver().cuMemGetInfo_v2) return d.NotInDriver("cuMemGetInfo_v2");
  size_t free = 0, total = 0;
  if (const CUresult result = d.driver().cuMemGetInfo_v2(&free, &total)) return result;
  d.memory().Limit(&free, &total);
  out->free = free;
  out->total = total;
  return CUDA_SUCCESS;
}

uint32_t cuPointerGetAttribute(Dispatcher& d, session::Call&,
                               const api::PointerGetAttributeRequest& in,
                               api::PointerGetAttributeReply* out) {
  if (!d.driver().cuPointerGetAttribute) return d.NotInDriver("cuPointerGetAttribute");
  // Only of device memory: what else the worker has is not the guest's.
  if (!d.memory().Allows(in.ptr, 1)) return CUDA_ERROR_INVALID_VALUE;
  const auto attribute = static_cast<CUpointer_attribute>(in.attribute);
  if (const CUresult result = api::refuse::cuPointerGetAttribute(attribute)) return result;
  const size_t bytes = PointerAttributeBytes(in.attribute);
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t value = 0;
  if (const CUresult result = d.driver().cuPointerGetAttribute(&value, attribute, in.ptr))
    return result;
  if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT) value = d.IdOf(reinterpret_cast<CUcontext>(value));
  if (attribute == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)
    value = d.IdOf(reinterpret_cast<CUmemoryPool>(value));
  out->data.assign(reinterpret_cast<const char*>(&value), bytes);
  return CUDA_SUCCESS;
}

uint32_t cuPointerSetAttribute(Dispatcher& d, session::Call&,
                               const api::PointerSetAttributeRequest& in, api::None*) {
  if (!d.driver().cuPointerSetAttribute) return d.NotInDriver("cuPointerSetAttribute");
  // The only attribute that can be set (cuPointerSetAttribute's documentation).
  if (in.attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || in.value.size() != sizeof(unsigned)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!d.memory().Allows(in.ptr, 1)) return CUDA_ERROR_INVALID_VALUE;
  unsigned value = 0;
  memcpy(&value, in.value.data(), sizeof value);
  return d.driver().cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, in.ptr);
}

uint32_t cuMemPoolCreate(Dispatcher& d, session::Call&, const api::MemPoolCreateRequest& in,
                         api::MemPoolCreateReply* out) {
  if (!d.driver().cuMemPoolCreate) return d.NotInDriver("cuMemPoolCreate");
  CUmemPoolProps props;
  if (in.poolProps.size() != sizeof props) return session::Handler::kMalformed;
  memcpy(&props, in.poolProps.data(), sizeof props);
  // A pointer of the guest's, meant for another operating system, and handles that lead out of the
  // session.
  props.win32SecurityAttributes = nullptr;
  if (props.handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  if (!d.handles().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  CUmemoryPool pool = nullptr;
  if (const CUresult result = d.driver().cuMemPoolCreate(&pool, &props)) return result;
  out->pool = d.Mint(pool);
  return CUDA_SUCCESS;
}

uint32_t cuMemPoolGetAttribute(Dispatcher& d, session::Call&,
                               const api::MemPoolGetAttributeRequest& in,
                               api::MemPoolGetAttributeReply* out) {
  if (!d.driver().cuMemPoolGetAttribute) return d.NotInDriver("cuMemPoolGetAttribute");
  CUmemoryPool pool = nullptr;
  if (!d.handles().Find(in.pool, &pool)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t value = 0;  // int (4 bytes) or cuuint64_t; little-endian, so one buffer serves both
  const auto attribute = static_cast<CUmemPool_attribute>(in.attr);
  if (const CUresult result = d.driver().cuMemPoolGetAttribute(pool, attribute, &value))
    return result;
  out->value = value;
  return CUDA_SUCCESS;
}

uint32_t cuMemPoolSetAttribute(Dispatcher& d, session::Call&,
                               const api::MemPoolSetAttributeRequest& in, api::None*) {
  if (!d.driver().cuMemPoolSetAttribute) return d.NotInDriver("cuMemPoolSetAttribute");
  CUmemoryPool pool = nullptr;
  if (!d.handles().Find(in.pool, &pool)) return CUDA_ERROR_INVALID_VALUE;
  uint64_t wide = in.value;
  int narrow = static_cast<int>(in.value);
  void* value = api::PoolAttributeIs64Bit(in.attr) ? static_cast<void*>(&wide) : &narrow;
  return d.driver().cuMemPoolSetAttribute(pool, static_cast<CUmemPool_attribute>(in.attr), value);
}

}  // namespace manual
}  // namespace smolvm::dispatch
