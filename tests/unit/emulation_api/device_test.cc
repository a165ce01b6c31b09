#include <set>

#include "host-daemon/emulation/device/attributes.h"
#include "host-daemon/emulation/device/settings.h"
#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

using DeviceTest = EmulationTest;

TEST_F(DeviceTest, IsOneNamedDevice) {
  int count = 0;
  EXPECT_CUDA(cuDeviceGetCount(&count));
  EXPECT_EQ(count, 1);
  char name[64];
  EXPECT_CUDA(cuDeviceGetName(name, sizeof(name), device_));
  EXPECT_STREQ(name, "smolvm CPU emulation device");
  EXPECT_CUDA(cuDeviceGetName(name, 7, device_));
  EXPECT_STREQ(name, "smolvm");
  EXPECT_EQ(cuDeviceGetName(name, 0, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetName(nullptr, 7, device_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, RefusesOrdinalsThatAreNotThere) {
  CUdevice device = 7;
  EXPECT_EQ(cuDeviceGet(&device, 99), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGet(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device, 7);
  size_t bytes = 0;
  EXPECT_EQ(cuDeviceTotalMem(&bytes, 1), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(DeviceTest, AnswersEveryAttribute) {
  for (int i = 1; i < CU_DEVICE_ATTRIBUTE_MAX; ++i) {
    int value = -7;
    EXPECT_CUDA(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(i), device_)) << i;
    EXPECT_NE(value, -7) << i;
  }
  int value = -7;
  EXPECT_EQ(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(0), device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device_),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DeviceTest, SaysWhatItIs) {
  const auto attribute = [&](CUdevice_attribute which) {
    int value = -1;
    EXPECT_CUDA(cuDeviceGetAttribute(&value, which, device_));
    return value;
  };
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH), 0);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY), 1);
  EXPECT_EQ(attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED), 1);
  EXPECT_GE(attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), 1);
  size_t bytes = 0;
  EXPECT_CUDA(cuDeviceTotalMem(&bytes, device_));
  EXPECT_EQ(bytes, size_t{1024} << 20);
}

TEST_F(DeviceTest, HasOneIdentity) {
  CUuuid first, again;
  EXPECT_CUDA(cuDeviceGetUuid(&first, device_));
  EXPECT_CUDA(cuDeviceGetUuid(&again, device_));
  EXPECT_EQ(std::memcmp(&first, &again, sizeof(first)), 0);
  EXPECT_EQ(DeviceUuidText().size(), 40u);
  char id[32];
  CUdevice device = 7;
  EXPECT_CUDA(cuDeviceGetPCIBusId(id, sizeof(id), device_));
  EXPECT_CUDA(cuDeviceGetByPCIBusId(&device, id));
  EXPECT_EQ(device, device_);
  EXPECT_EQ(cuDeviceGetByPCIBusId(&device, "0000:42:00.0"), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuDeviceGetByPCIBusId(&device, "what"), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuDeviceGetPCIBusId(id, 4, device_), CUDA_ERROR_INVALID_VALUE);
  char luid[8];
  unsigned mask = 0;
  EXPECT_EQ(cuDeviceGetLuid(luid, &mask, device_), CUDA_ERROR_NOT_SUPPORTED);
}

TEST(SettingsTest, ParsesSizes) {
  EXPECT_EQ(ParseMemory("1024"), size_t{1} << 30);
  EXPECT_EQ(ParseMemory("512M"), size_t{512} << 20);
  EXPECT_EQ(ParseMemory("2G"), size_t{2} << 30);
  EXPECT_EQ(ParseMemory("2048K"), size_t{2} << 20);
  for (const char* bad : {"", "M", "-1", "1.5G", "99999999999G", "0", "1K", "12X", "12 "})
    EXPECT_EQ(ParseMemory(bad), std::nullopt) << bad;
}

TEST(SettingsTest, ParsesComputeCapabilities) {
  EXPECT_EQ(ParseComputeCapability("9.0"), 90);
  EXPECT_EQ(ParseComputeCapability("7.5"), 75);
  EXPECT_EQ(ParseComputeCapability("13.0"), 130);
  for (const char* bad : {"", "9", "4.9", "13.1", "9.x", ".5", "9.10", "-9.0"})
    EXPECT_EQ(ParseComputeCapability(bad), std::nullopt) << bad;
}

TEST(SettingsTest, AppliesVisibleDevices) {
  const std::string uuid = "GPU-01234567-89ab";
  for (const char* shown : {"0", "0,1", " 0 ", "GPU-0123", "GPU-01234567-89ab"})
    EXPECT_TRUE(IsVisible(shown, uuid)) << shown;
  for (const char* hidden : {"", "-1", "1", "1,0", "GPU-f", "x", "GPU-01234567-89ab-cd"})
    EXPECT_FALSE(IsVisible(hidden, uuid)) << hidden;
}

}  // namespace
}  // namespace smolvm::emulation
