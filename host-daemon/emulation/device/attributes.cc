#include "host-daemon/emulation/device/attributes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

namespace smolvm::emulation {
namespace {

long CacheBytes() {
  const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return last_level > 0 ? last_level : std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE));
}

// FNV-1a, 64 bits; two of them with different starts make the UUID.
uint64_t Hash(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

std::string MachineId() {
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  return id;
}

}  // namespace

int MultiprocessorCount() {
  static const int count = std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  return count;
}

std::optional<int> DeviceAttribute(CUdevice_attribute attribute, const Settings& settings) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return kMaxThreadsPerBlock;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return kMaxBlockDim[attribute - CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X];
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return kMaxGridDim[attribute - CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X];
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return kSharedPerBlock;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return kSharedPerBlockOptIn;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return kSharedPerMultiprocessor;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      return kSharedReservedPerBlock;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      return kConstantBytes;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return kWarpSize;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      return 2147483647;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      return kRegistersPerMultiprocessor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return MultiprocessorCount();
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return kMaxThreadsPerMultiprocessor;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      return kMaxBlocksPerMultiprocessor;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return settings.compute_capability / 10;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return settings.compute_capability % 10;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      return static_cast<int>(CacheBytes());
    // Alignments stay non-zero although there are no textures: programs divide by them.
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
    case CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT:
      return 512;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT:
      return 32;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
      return settings.kernel_timeout_ms > 0;
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
      return kPciDomain;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      return kPciBus;
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
      return kPciDevice;
    // Copies run on their streams' threads, to and from the device and beside kernels.
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR:
    case CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT:
    // Managed memory is the host's own: nothing migrates, so there is nothing to prefetch or advise
    // (CONCURRENT_MANAGED_ACCESS is 0, and those calls answer as documented for it).
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      return 1;
    case CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO:
      return 2;
    case CU_DEVICE_ATTRIBUTE_NUMA_ID:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return -1;  // documented: no node
    default:
      break;
  }
  const int number = attribute;
  if (number <= 0 || number >= CU_DEVICE_ATTRIBUTE_MAX) return std::nullopt;
  return 0;
}

CUuuid DeviceUuid() {
  static const CUuuid uuid = [] {
    const std::string text = "smolvm-cuda-emulation:" + MachineId();
    const uint64_t halves[2] = {Hash(text, 0xcbf29ce484222325u), Hash(text, 0x84222325cbf29ce4u)};
    CUuuid made;
    std::memcpy(made.bytes, halves, sizeof(made.bytes));
    // RFC 9562: version 8 (our own scheme), variant 10.
    made.bytes[6] = static_cast<char>((made.bytes[6] & 0x0f) | 0x80);
    made.bytes[8] = static_cast<char>((made.bytes[8] & 0x3f) | 0x80);
    return made;
  }();
  return uuid;
}

std::string DeviceUuidText() {
  const CUuuid uuid = DeviceUuid();
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

}  // namespace smolvm::emulation
