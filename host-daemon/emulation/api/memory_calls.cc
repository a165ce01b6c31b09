// Device memory: allocation, sizes and ranges.
#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {
namespace {

CUresult Allocate(Context& context, size_t bytes, bool managed, CUdeviceptr* address) {
  Arena& arena = TheDriver().arena;
  const uintptr_t base = arena.Allocate(bytes);
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  auto region = std::make_shared<Region>(Region::Kind::kDevice, base, bytes);
  region->owner = context.id();
  region->context = context.handle();
  region->managed = managed;
  region->release = [base, &arena] { arena.Free(base); };
  TheDriver().memory.Add(std::move(region));
  *address = base;
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuMemGetInfo_v2(size_t* free, size_t* total) {
  SMOLVM_ENTER();
  if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  *free = TheDriver().arena.free_bytes();
  *total = TheDriver().arena.device_bytes();
  return CUDA_SUCCESS;
}

SMOLVM_API cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  SMOLVM_ENTER();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  return Allocate(*context, bytes, false, address);
}

// The arena is this process's memory, so host and device use the same bytes at the same address.
// Where the program is elsewhere (remoted), the call does not get here.
SMOLVM_API cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned int flags) {
  SMOLVM_ENTER();
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  return Allocate(*context, bytes, true, address);
}

SMOLVM_API cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                              unsigned int element_bytes) {
  SMOLVM_ENTER();
  if (address == nullptr || pitch == nullptr || width == 0 || height == 0)
    return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuMemAllocPitch_v2(element_bytes));
  SMOLVM_CURRENT_CONTEXT(context);
  if (width > TheDriver().arena.device_bytes()) return CUDA_ERROR_OUT_OF_MEMORY;
  const size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  size_t bytes = 0;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  SMOLVM_RETURN_IF_ERROR(Allocate(*context, bytes, false, address));
  *pitch = row;
  return CUDA_SUCCESS;
}

// Waits for unfinished work, as programs rely on.
SMOLVM_API cuMemFree_v2(CUdeviceptr address) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  const auto known = TheDriver().memory.Find(address);
  if (known == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const auto group = context->group()) group->WaitAll();
  const auto region = TheDriver().memory.Remove(address, [](const Region& each) {
    return each.kind == Region::Kind::kDevice || each.kind == Region::Kind::kPool;
  });
  if (region == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return context->fault();
}

SMOLVM_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(context);
  const auto region = TheDriver().memory.Find(address);
  if (region == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = region->base;
  if (bytes != nullptr) *bytes = region->size;
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
