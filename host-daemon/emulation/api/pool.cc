#include "host-daemon/emulation/api/pool.h"

#include <cstring>

namespace smolvm::emulation {
namespace {

template <typename T>
CUresult Put(void* out, T value) {
  std::memcpy(out, &value, sizeof(value));
  return CUDA_SUCCESS;
}

template <typename T>
T Read(const void* in) {
  T value;
  std::memcpy(&value, in, sizeof(value));
  return value;
}

CUresult SetFlag(std::atomic<int>* flag, const void* value) {
  const int set = Read<int>(value);
  if (set != 0 && set != 1) return CUDA_ERROR_INVALID_VALUE;
  *flag = set;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult Pool::GetAttribute(CUmemPool_attribute attribute, void* value) const {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return Put(value, follow_event_.load());
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return Put(value, opportunistic_.load());
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return Put(value, internal_.load());
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return Put(value, release_threshold_.load());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return Put(value, used_.load());
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return Put(value, used_high_.load());
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Pool::SetAttribute(CUmemPool_attribute attribute, const void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      return SetFlag(&follow_event_, value);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      return SetFlag(&opportunistic_, value);
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return SetFlag(&internal_, value);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = Read<uint64_t>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (Read<uint64_t>(value) != 0) return CUDA_ERROR_INVALID_VALUE;  // documented: only to zero
      used_high_ = used_.load();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool Pool::Take(uint64_t bytes) {
  const uint64_t now = used_.fetch_add(bytes) + bytes;
  if (max_bytes != 0 && now > max_bytes) {
    used_.fetch_sub(bytes);
    return false;
  }
  uint64_t high = used_high_.load();
  while (now > high && !used_high_.compare_exchange_weak(high, now)) {
  }
  return true;
}

}  // namespace smolvm::emulation
