#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/device/attributes.h"

namespace smolvm::emulation {
namespace {

// What cuDeviceGetDevResource and kin would give is refused; what takes a name or an id gets the
// one device's.
CUresult CopyUuid(CUuuid* uuid, CUdevice device) {
  SMOLVM_ENTER();
  if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *uuid = DeviceUuid();
  return CUDA_SUCCESS;
}

CUresult CopyText(const std::string& text, char* out, int capacity) {
  const size_t length = std::min(text.size(), static_cast<size_t>(capacity) - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuDeviceGet(CUdevice* device, int ordinal) {
  SMOLVM_ENTER();
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(ordinal));
  *device = kDevice;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetCount(int* count) {
  SMOLVM_ENTER();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = 1;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetName(char* name, int length, CUdevice device) {
  SMOLVM_ENTER();
  if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return CopyText(kDeviceName, name, length);
}

SMOLVM_API cuDeviceGetUuid(CUuuid* uuid, CUdevice device) { return CopyUuid(uuid, device); }
SMOLVM_API cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) { return CopyUuid(uuid, device); }

// LUIDs exist on Windows only.
SMOLVM_API cuDeviceGetLuid(char* luid, unsigned int* mask, CUdevice device) {
  SMOLVM_ENTER();
  if (luid == nullptr || mask == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return CUDA_ERROR_NOT_SUPPORTED;
}

SMOLVM_API cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  SMOLVM_ENTER();
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *bytes = TheDriver().arena.device_bytes();
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  const auto known = DeviceAttribute(attribute, TheDriver().settings);
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  *value = *known;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  SMOLVM_ENTER();
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *major = TheDriver().settings.compute_capability / 10;
  *minor = TheDriver().settings.compute_capability % 10;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetProperties(CUdevprop* properties, CUdevice device) {
  SMOLVM_ENTER();
  if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  CUdevprop made = {};
  made.maxThreadsPerBlock = kMaxThreadsPerBlock;
  std::copy(std::begin(kMaxBlockDim), std::end(kMaxBlockDim), made.maxThreadsDim);
  std::copy(std::begin(kMaxGridDim), std::end(kMaxGridDim), made.maxGridSize);
  made.sharedMemPerBlock = kSharedPerBlock;
  made.totalConstantMemory = kConstantBytes;
  made.SIMDWidth = kWarpSize;
  made.memPitch = 2147483647;
  made.regsPerBlock = kRegistersPerMultiprocessor;
  made.textureAlign = 512;
  *properties = made;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetPCIBusId(char* id, int length, CUdevice device) {
  SMOLVM_ENTER();
  if (id == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  // Documented: long enough, or the call fails rather than truncate an identity.
  if (static_cast<size_t>(length) < sizeof(kPciBusId)) return CUDA_ERROR_INVALID_VALUE;
  return CopyText(kPciBusId, id, length);
}

// Takes "domain:bus:device.function", "domain:bus:device" and "bus:device.function", all
// hexadecimal.
SMOLVM_API cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  SMOLVM_ENTER();
  if (device == nullptr || id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned domain = 0, bus = 0, slot = 0, function = 0;
  if (std::sscanf(id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3) {
    domain = 0;
    if (std::sscanf(id, "%x:%x.%x", &bus, &slot, &function) != 3) return CUDA_ERROR_INVALID_VALUE;
  }
  if (domain != kPciDomain || bus != kPciBus || slot != kPciDevice || function != 0)
    return CUDA_ERROR_INVALID_DEVICE;
  *device = kDevice;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetExecAffinitySupport(int* supported, CUexecAffinityType type,
                                          CUdevice device) {
  SMOLVM_ENTER();
  if (supported == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuDeviceGetExecAffinitySupport(type));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *supported = 0;
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceGetTexture1DLinearMaxWidth(size_t* width, CUarray_format, unsigned,
                                              CUdevice device) {
  SMOLVM_ENTER();
  if (width == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  *width = 0;  // no textures
  return CUDA_SUCCESS;
}

SMOLVM_API cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  SMOLVM_ENTER();
  if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(peer));
  *can = 0;  // a device is no peer of itself
  return CUDA_SUCCESS;
}

// Peer attributes are of two different devices, and there is one.
SMOLVM_API cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice source,
                                   CUdevice destination) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuDeviceGetP2PAttribute(attribute));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(source));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(destination));
  return CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace smolvm::emulation
