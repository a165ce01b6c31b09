// Stream-ordered allocation and memory pools.
#include <algorithm>

#include "host-daemon/emulation/api/api.h"

namespace smolvm::emulation {
namespace {

CUresult FindPool(CUmemoryPool handle, std::shared_ptr<Pool>* pool) {
  *pool = handle == nullptr ? nullptr : TheDriver().pools.Find(handle);
  return *pool != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUmemoryPool HandleOf(const std::shared_ptr<Pool>& pool) {
  return reinterpret_cast<CUmemoryPool>(pool.get());
}

std::shared_ptr<Pool> CurrentPool() {
  std::lock_guard lock(TheDriver().current_pool_mutex);
  return TheDriver().current_pool;
}

// The memory can be used at once, which stream order allows. When there is none, frees that are
// still queued may bring some.
CUresult Allocate(CUdeviceptr* address, size_t bytes, const std::shared_ptr<Pool>& pool,
                  Context& context) {
  if (!pool->Take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Arena& arena = TheDriver().arena;
  uintptr_t base = arena.Allocate(bytes);
  if (base == 0) {
    if (const auto group = context.group()) group->WaitAll();
    base = arena.Allocate(bytes);
  }
  if (base == 0) {
    pool->Give(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto region = std::make_shared<Region>(Region::Kind::kPool, base, bytes);
  region->owner = context.id();
  region->context = context.handle();
  region->pool = HandleOf(pool);
  region->release = [base, bytes, pool, &arena] {
    arena.Free(base);
    pool->Give(bytes);
  };
  TheDriver().memory.Add(std::move(region));
  *address = base;
  return CUDA_SUCCESS;
}

CUresult AllocateAsync(CUdeviceptr* address, size_t bytes, const std::shared_ptr<Pool>& pool,
                       CUstream handle) {
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  return Allocate(address, bytes, pool, *context);
}

CUresult AllocCurrent(CUdeviceptr* address, size_t bytes, CUstream stream) {
  SMOLVM_ENTER();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  return AllocateAsync(address, bytes, CurrentPool(), stream);
}

CUresult AllocFrom(CUdeviceptr* address, size_t bytes, CUmemoryPool handle, CUstream stream) {
  SMOLVM_ENTER();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  SMOLVM_RETURN_IF_ERROR(FindPool(handle, &pool));
  return AllocateAsync(address, bytes, pool, stream);
}

CUresult Free(CUdeviceptr address, CUstream handle) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Stream> stream;
  SMOLVM_RETURN_IF_ERROR(FindStream(handle, &stream));
  // It leaves the map at once, so that a second free is refused; the memory lasts until the stream
  // gets there.
  // Memory of cuMemAlloc is taken too, as by GPUs (CUDA programming guide, stream-ordered
  // allocation).
  auto region = TheDriver().memory.Remove(address, [](const Region& each) {
    return each.kind == Region::Kind::kPool || each.kind == Region::Kind::kDevice;
  });
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  stream->Submit(Stream::Where::kAnywhere, [region = std::move(region)] {});
  return CUDA_SUCCESS;
}

CUresult CheckLocation(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return CheckDevice(location.id);
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                       : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult SetCurrent(const std::shared_ptr<Pool>& pool) {
  std::lock_guard lock(TheDriver().current_pool_mutex);
  TheDriver().current_pool = pool;
  return CUDA_SUCCESS;
}

// The newer calls name a location and a type of allocation where the older ones name a device.
CUresult CheckPlace(CUmemLocation* location, CUmemAllocationType type) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckLocation(*location));
  return type == CU_MEM_ALLOCATION_TYPE_PINNED ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace

SMOLVM_API cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return AllocCurrent(address, bytes, Legacy(stream));
}
SMOLVM_API cuMemAllocAsync_ptsz(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return AllocCurrent(address, bytes, PerThread(stream));
}
SMOLVM_API cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                   CUstream stream) {
  return AllocFrom(address, bytes, pool, Legacy(stream));
}
SMOLVM_API cuMemAllocFromPoolAsync_ptsz(CUdeviceptr* address, size_t bytes, CUmemoryPool pool,
                                        CUstream stream) {
  return AllocFrom(address, bytes, pool, PerThread(stream));
}
SMOLVM_API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return Free(address, Legacy(stream));
}
SMOLVM_API cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
  return Free(address, PerThread(stream));
}

SMOLVM_API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  SMOLVM_ENTER();
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *pool = HandleOf(TheDriver().default_pool);
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  SMOLVM_ENTER();
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *pool = HandleOf(CurrentPool());
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  std::shared_ptr<Pool> pool;
  SMOLVM_RETURN_IF_ERROR(FindPool(handle, &pool));
  return SetCurrent(pool);
}

SMOLVM_API cuMemGetDefaultMemPool(CUmemoryPool* pool, CUmemLocation* location,
                                  CUmemAllocationType type) {
  SMOLVM_ENTER();
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckPlace(location, type));
  return cuDeviceGetDefaultMemPool(pool, kDevice);
}

SMOLVM_API cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  SMOLVM_ENTER();
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckPlace(location, type));
  return cuDeviceGetMemPool(pool, kDevice);
}

SMOLVM_API cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(CheckPlace(location, type));
  return cuDeviceSetMemPool(kDevice, pool);
}

SMOLVM_API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  SMOLVM_ENTER();
  if (pool == nullptr || properties == nullptr ||
      properties->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
    return CUDA_ERROR_INVALID_VALUE;
  const auto is_set = [](unsigned char byte) { return byte != 0; };
  if (properties->win32SecurityAttributes != nullptr ||
      std::any_of(std::begin(properties->reserved), std::end(properties->reserved), is_set))
    return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckLocation(properties->location));
  if (properties->handleTypes != CU_MEM_HANDLE_TYPE_NONE || properties->usage != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  *pool = TheDriver().pools.Add(std::make_shared<Pool>(properties->maxSize));
  return CUDA_SUCCESS;
}

SMOLVM_API cuMemPoolDestroy(CUmemoryPool handle) {
  SMOLVM_ENTER();
  Driver& driver = TheDriver();
  if (handle == nullptr || handle == HandleOf(driver.default_pool)) return CUDA_ERROR_INVALID_VALUE;
  const auto pool = driver.pools.Remove(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (CurrentPool() == pool) SetCurrent(driver.default_pool);
  return CUDA_SUCCESS;
}

SMOLVM_API cuMemPoolTrimTo(CUmemoryPool handle, size_t) {
  SMOLVM_ENTER();
  std::shared_ptr<Pool> pool;
  return FindPool(handle, &pool);  // a pool keeps nothing that could be trimmed
}

SMOLVM_API cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuMemPoolGetAttribute(attribute));
  std::shared_ptr<Pool> pool;
  SMOLVM_RETURN_IF_ERROR(FindPool(handle, &pool));
  return pool->GetAttribute(attribute, value);
}

SMOLVM_API cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuMemPoolSetAttribute(attribute));
  std::shared_ptr<Pool> pool;
  SMOLVM_RETURN_IF_ERROR(FindPool(handle, &pool));
  return pool->SetAttribute(attribute, value);
}

SMOLVM_API cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle,
                              CUmemLocation* location) {
  SMOLVM_ENTER();
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  SMOLVM_RETURN_IF_ERROR(FindPool(handle, &pool));
  SMOLVM_RETURN_IF_ERROR(CheckLocation(*location));
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

// The only device is the pool's own, whose access cannot be taken away.
SMOLVM_API cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, size_t count) {
  SMOLVM_ENTER();
  if (access == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Pool> pool;
  SMOLVM_RETURN_IF_ERROR(FindPool(handle, &pool));
  for (size_t i = 0; i < count; ++i) {
    SMOLVM_RETURN_IF_ERROR(CheckLocation(access[i].location));
    if (access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
