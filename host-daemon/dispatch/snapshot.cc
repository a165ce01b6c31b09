#include "host-daemon/dispatch/snapshot.h"

#include <algorithm>
#include <cstring>

#include "host-daemon/dispatch/dispatch_table.h"
#include "protocol/wire/frame.h"

namespace smolvm::dispatch {
namespace {

// Without memory that both sides map, the host's addresses mean nothing in the guest.
bool NeedsSharedMemory(int attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS:
    case CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES:
    case CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
      return true;
    default:
      return false;
  }
}

void FillAttributes(const driver::DriverTable& driver, CUdevice device, api::Device* out) {
  for (int attribute = 0; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute) {
    int value = 0;
    CUresult status =
        driver.cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
    if (status == CUDA_SUCCESS && NeedsSharedMemory(attribute)) value = 0;
    out->attributes.push_back(value);
    out->attribute_status.push_back(status);
  }
}

CUresult FillDevice(const driver::DriverTable& driver, int ordinal, uint64_t memory_limit,
                    api::Device* out) {
  CUdevice device = 0;
  if (const CUresult result = driver.cuDeviceGet(&device, ordinal)) return result;
  char name[256] = {};
  if (const CUresult result = driver.cuDeviceGetName(name, sizeof name - 1, device)) return result;
  out->name = name;
  CUuuid uuid{};
  const auto get_uuid =
      driver.cuDeviceGetUuid_v2 ? driver.cuDeviceGetUuid_v2 : driver.cuDeviceGetUuid;
  if (get_uuid && get_uuid(&uuid, device) == CUDA_SUCCESS)
    out->uuid.assign(uuid.bytes, sizeof uuid.bytes);
  size_t total = 0;
  if (const CUresult result = driver.cuDeviceTotalMem_v2(&total, device)) return result;
  out->total_memory = memory_limit ? std::min<uint64_t>(total, memory_limit) : total;
  char bus_id[32] = {};
  if (driver.cuDeviceGetPCIBusId &&
      driver.cuDeviceGetPCIBusId(bus_id, sizeof bus_id - 1, device) == CUDA_SUCCESS) {
    out->pci_bus_id = bus_id;
  }
  char luid[8] = {};
  unsigned mask = 0;
  out->luid_status = driver.cuDeviceGetLuid ? driver.cuDeviceGetLuid(luid, &mask, device)
                                            : CUDA_ERROR_NOT_SUPPORTED;
  if (out->luid_status == CUDA_SUCCESS) {
    out->luid.assign(luid, sizeof luid);
    out->luid_node_mask = mask;
  }
  FillAttributes(driver, device, out);
  return CUDA_SUCCESS;
}

}  // namespace

std::string KnownCalls() {
  std::string bits((wire::kMaxCallId + 1) / 8, '\0');
  for (size_t i = 0; i < kCallCount; ++i)
    bits[kCalls[i].id / 8] |= static_cast<char>(1 << (kCalls[i].id % 8));
  return bits;
}

CUresult FillSnapshot(const driver::DriverTable& driver, uint64_t memory_limit,
                      api::HelloReply* reply) {
  reply->protocol_version = wire::kProtocolVersion;
  reply->spec_version = CUDA_VERSION;
  reply->known_calls = KnownCalls();
  int version = 0;
  if (const CUresult result = driver.cuDriverGetVersion(&version)) return result;
  reply->driver_version = version;
  int count = 0;
  if (const CUresult result = driver.cuDeviceGetCount(&count)) return result;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    reply->devices.emplace_back();
    if (const CUresult result = FillDevice(driver, ordinal, memory_limit, &reply->devices.back()))
      return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace smolvm::dispatch
