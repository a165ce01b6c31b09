// Devices, answered from the snapshot that the hello brought.
#include <algorithm>
#include <cctype>
#include <cstdio>

#include "guest-shim/libcuda/entry/entry.h"
#include "protocol/api/guest_manual.h"

namespace smolvm::guest {
namespace {

// Null when there is no such device.
const api::Device* Find(CUdevice dev) {
  const Session& session = TheSession();
  if (dev < 0 || dev >= static_cast<int>(session.visible().size())) return nullptr;
  return &session.device(dev);
}

CUresult Attribute(const api::Device& device, int attribute, int* value) {
  if (attribute < 1 || attribute >= static_cast<int>(device.attributes.size()))
    return CUDA_ERROR_INVALID_VALUE;
  *value = device.attributes[attribute];
  return static_cast<CUresult>(device.attribute_status[attribute]);
}

// As much of the text as fits, always terminated.
void CopyText(const std::string& text, char* out, int capacity) {
  const size_t length = std::min(text.size(), static_cast<size_t>(capacity) - 1);
  memcpy(out, text.data(), length);
  out[length] = '\0';
}

// "0000:01:00.0", "01:00.0" or "0000:01:00" name the same device.
bool ParseBusId(const char* text, unsigned parts[4]) {
  char end = 0;
  parts[3] = 0;
  if (sscanf(text, "%x:%x:%x.%x%c", &parts[0], &parts[1], &parts[2], &parts[3], &end) == 4)
    return true;
  if (sscanf(text, "%x:%x:%x%c", &parts[0], &parts[1], &parts[2], &end) == 3) return true;
  parts[0] = 0;
  return sscanf(text, "%x:%x.%x%c", &parts[1], &parts[2], &parts[3], &end) == 3;
}

}  // namespace

namespace manual {

CUresult cuDeviceGet(uint32_t, CUdevice* device, int ordinal) {
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!Find(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(uint32_t, int* count) {
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(TheSession().visible().size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(uint32_t, char* name, int len, CUdevice dev) {
  if (!name || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  CopyText(device->name, name, len);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(uint32_t, CUuuid* uuid, CUdevice dev) {
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (device->uuid.size() != sizeof uuid->bytes) return CUDA_ERROR_NOT_SUPPORTED;
  memcpy(uuid->bytes, device->uuid.data(), sizeof uuid->bytes);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(uint32_t variant, CUuuid* uuid, CUdevice dev) {
  return cuDeviceGetUuid_v2(variant, uuid, dev);
}

CUresult cuDeviceGetLuid(uint32_t, char* luid, unsigned int* deviceNodeMask, CUdevice dev) {
  if (!luid || !deviceNodeMask) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (device->luid_status == CUDA_SUCCESS && device->luid.size() == 8) {
    memcpy(luid, device->luid.data(), 8);
    *deviceNodeMask = device->luid_node_mask;
  }
  return static_cast<CUresult>(device->luid_status);
}

CUresult cuDeviceTotalMem_v2(uint32_t, size_t* bytes, CUdevice dev) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = device->total_memory;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(uint32_t, int* pi, CUdevice_attribute attrib, CUdevice dev) {
  if (!pi) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  return device ? Attribute(*device, attrib, pi) : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceComputeCapability(uint32_t, int* major, int* minor, CUdevice dev) {
  if (!major || !minor) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (const CUresult result =
          Attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major))
    return result;
  return Attribute(*device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor);
}

CUresult cuDeviceGetProperties(uint32_t, CUdevprop* prop, CUdevice dev) {
  if (!prop) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  const auto get = [&](CUdevice_attribute attribute) {
    int value = 0;
    Attribute(*device, attribute, &value);
    return value;
  };
  *prop = {};
  prop->maxThreadsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  for (int i = 0; i < 3; ++i) {
    prop->maxThreadsDim[i] =
        get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i));
    prop->maxGridSize[i] =
        get(static_cast<CUdevice_attribute>(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + i));
  }
  prop->sharedMemPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  prop->totalConstantMemory = get(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY);
  prop->SIMDWidth = get(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  prop->memPitch = get(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
  prop->regsPerBlock = get(CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK);
  prop->clockRate = get(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  prop->textureAlign = get(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(uint32_t, char* pciBusId, int len, CUdevice dev) {
  if (!pciBusId || len <= 0) return CUDA_ERROR_INVALID_VALUE;
  const api::Device* device = Find(dev);
  if (!device) return CUDA_ERROR_INVALID_DEVICE;
  if (device->pci_bus_id.empty()) return CUDA_ERROR_NOT_SUPPORTED;
  // Documented: long enough, or the call fails rather than truncate an identity.
  if (static_cast<size_t>(len) <= device->pci_bus_id.size()) return CUDA_ERROR_INVALID_VALUE;
  CopyText(device->pci_bus_id, pciBusId, len);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(uint32_t, CUdevice* dev, const char* pciBusId) {
  unsigned wanted[4], has[4];
  if (!dev || !pciBusId || !ParseBusId(pciBusId, wanted)) return CUDA_ERROR_INVALID_VALUE;
  const Session& session = TheSession();
  for (size_t i = 0; i < session.visible().size(); ++i) {
    if (!ParseBusId(session.device(static_cast<CUdevice>(i)).pci_bus_id.c_str(), has)) continue;
    if (!std::equal(wanted, wanted + 4, has)) continue;
    *dev = static_cast<CUdevice>(i);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace manual
}  // namespace smolvm::guest
