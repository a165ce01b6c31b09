// Pinned host memory. Kernels reach the arena only, so none of it is mapped for the device.
#include <sys/mman.h>
#include <unistd.h>

#include "host-daemon/emulation/api/api.h"

namespace smolvm::emulation {
namespace {

size_t PhysicalBytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

CUresult Allocate(void** address, size_t bytes, unsigned flags) {
  SMOLVM_ENTER();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuMemHostAlloc(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  if (bytes > PhysicalBytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  auto region =
      std::make_shared<Region>(Region::Kind::kHost, reinterpret_cast<uintptr_t>(base), bytes);
  region->owner = context->id();
  region->context = context->handle();
  region->flags = flags;
  region->release = [base, bytes] { munmap(base, bytes); };
  // Nothing else can be registered where the system has just found room.
  TheDriver().memory.Add(std::move(region));
  *address = base;
  return CUDA_SUCCESS;
}

// Whether every page of the range is mapped: msync says ENOMEM when one is not; MS_ASYNC starts
// nothing.
bool IsMapped(uintptr_t base, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = base / page * page;
  return msync(reinterpret_cast<void*>(begin), base + bytes - begin, MS_ASYNC) == 0;
}

CUresult Register(void* address, size_t bytes, unsigned flags) {
  SMOLVM_ENTER();
  const auto base = reinterpret_cast<uintptr_t>(address);
  if (address == nullptr || bytes == 0 || base + bytes < base) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuMemHostRegister_v2(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  SMOLVM_RETURN_IF_ERROR(api::refuse::cuMemHostRegister_v2(flags));
  const Arena& arena = TheDriver().arena;
  if (base < arena.base() + arena.reserved_bytes() && base + bytes > arena.base())
    return CUDA_ERROR_INVALID_VALUE;
  if (!IsMapped(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto region = std::make_shared<Region>(Region::Kind::kRegistered, base, bytes);
  region->owner = context->id();
  region->context = context->handle();
  region->flags = flags;
  return TheDriver().memory.Add(std::move(region)) ? CUDA_SUCCESS
                                                   : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

}  // namespace

SMOLVM_API cuMemHostAlloc(void** address, size_t bytes, unsigned int flags) {
  return Allocate(address, bytes, flags);
}

SMOLVM_API cuMemAllocHost_v2(void** address, size_t bytes) { return Allocate(address, bytes, 0); }

SMOLVM_API cuMemFreeHost(void* address) {
  SMOLVM_ENTER();
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  if (const auto group = context->group()) group->WaitAll();
  const auto region = TheDriver().memory.Remove(
      reinterpret_cast<uintptr_t>(address),
      [](const Region& each) { return each.kind == Region::Kind::kHost; });
  return region != nullptr ? context->fault() : CUDA_ERROR_INVALID_VALUE;
}

SMOLVM_API cuMemHostRegister_v2(void* address, size_t bytes, unsigned int flags) {
  return Register(address, bytes, flags);
}
SMOLVM_API cuMemHostRegister(void* address, size_t bytes, unsigned int flags) {
  return Register(address, bytes, flags);
}

SMOLVM_API cuMemHostUnregister(void* address) {
  SMOLVM_ENTER();
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  const auto base = reinterpret_cast<uintptr_t>(address);
  const auto known = TheDriver().memory.Find(base);
  if (known == nullptr || known->kind != Region::Kind::kRegistered || known->base != base)
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (const auto group = context->group()) group->WaitAll();
  const auto region = TheDriver().memory.Remove(
      base, [](const Region& each) { return each.kind == Region::Kind::kRegistered; });
  return region != nullptr ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

SMOLVM_API cuMemHostGetDevicePointer_v2(CUdeviceptr* device, void* address, unsigned int flags) {
  SMOLVM_ENTER();
  if (device == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuMemHostGetDevicePointer_v2(flags));
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(reinterpret_cast<uintptr_t>(address));
  if (region == nullptr || region->IsDevice()) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_ERROR_NOT_SUPPORTED;  // CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY is 0
}

SMOLVM_API cuMemHostGetFlags(unsigned int* flags, void* address) {
  SMOLVM_ENTER();
  if (flags == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(reinterpret_cast<uintptr_t>(address));
  if (region == nullptr || region->kind != Region::Kind::kHost) return CUDA_ERROR_INVALID_VALUE;
  *flags = region->flags;
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
