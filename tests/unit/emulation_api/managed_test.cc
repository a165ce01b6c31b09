// Managed memory: the same bytes at the same address for host and device.
#include <cstring>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

class ManagedTest : public EmulationTest {
 protected:
  // As a program has it: an address that the host uses directly.
  uint32_t* NewManaged(size_t bytes) {
    CUdeviceptr address = 0;
    EXPECT_CUDA(cuMemAllocManaged(&address, bytes, CU_MEM_ATTACH_GLOBAL));
    return reinterpret_cast<uint32_t*>(address);
  }
  static CUdeviceptr Device(const uint32_t* host) { return reinterpret_cast<CUdeviceptr>(host); }
};

TEST_F(ManagedTest, KernelsAndHostSeeTheSameBytes) {
  uint32_t* managed = NewManaged(4096);
  managed[1] = 41;
  CUdeviceptr counter = Device(managed + 1);
  ASSERT_CUDA(Launch("increment", {&counter}));
  ASSERT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(managed[1], 42u);
  EXPECT_CUDA(cuMemFree(Device(managed)));
}

TEST_F(ManagedTest, CopiesHaveArrivedWhenTheCallReturns) {
  uint32_t* managed = NewManaged(1 << 20);
  const CUdeviceptr ordinary = Alloc(1 << 20);
  ASSERT_CUDA(cuMemsetD32(ordinary, 7, 1 << 18));
  ASSERT_CUDA(cuMemcpyDtoD(Device(managed), ordinary, 1 << 20));
  EXPECT_EQ(managed[(1 << 18) - 1], 7u);
  managed[0] = 9;
  ASSERT_CUDA(cuMemcpyHtoD(ordinary, managed, 4));
  EXPECT_EQ(Word(ordinary), 9u);
  ASSERT_CUDA(cuMemcpyDtoH(managed + 1, ordinary, 4));
  EXPECT_EQ(managed[1], 9u);
}

TEST_F(ManagedTest, PointersSayWhatTheyAre) {
  uint32_t* managed = NewManaged(4096);
  unsigned is_managed = 0, type = 0;
  void* host = nullptr;
  const CUdeviceptr inside = Device(managed + 3);
  EXPECT_CUDA(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, inside));
  EXPECT_EQ(is_managed, 1u);
  EXPECT_CUDA(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_CUDA(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
  EXPECT_EQ(host, managed + 3);
}

TEST_F(ManagedTest, VariablesOfModulesAndLibraries) {
  constexpr char kManaged[] =
      "//fake\nkernel increment 8\nvariable shared 4 managed\nvariable own 4\n";
  CUmodule module = nullptr;
  ASSERT_CUDA(cuModuleLoadData(&module, kManaged));
  CUdeviceptr address = 0;
  unsigned is_managed = 0;
  ASSERT_CUDA(cuModuleGetGlobal(&address, nullptr, module, "shared"));
  EXPECT_CUDA(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
  EXPECT_EQ(is_managed, 1u);
  *reinterpret_cast<uint32_t*>(address) = 5;
  EXPECT_EQ(Word(address), 5u);
  CUlibrary library = nullptr;
  ASSERT_CUDA(cuLibraryLoadData(&library, kManaged, nullptr, nullptr, 0, nullptr, nullptr, 0));
  size_t bytes = 0;
  EXPECT_CUDA(cuLibraryGetManaged(&address, &bytes, library, "shared"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(cuLibraryGetManaged(&address, &bytes, library, "own"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(cuLibraryGetGlobal(&address, &bytes, library, "shared"), CUDA_ERROR_NOT_FOUND);
  EXPECT_CUDA(cuLibraryUnload(library));
}

TEST_F(ManagedTest, ArgumentsAreChecked) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAllocManaged(nullptr, 4, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&address, 4, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocManaged(&address, size_t{1} << 50, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(ManagedTest, AttachAndHints) {
  const CUdeviceptr managed = Device(NewManaged(4096)), ordinary = Alloc(4096);
  const CUstream stream = NewStream();
  EXPECT_CUDA(cuStreamAttachMemAsync(stream, managed, 0, CU_MEM_ATTACH_SINGLE));
  EXPECT_CUDA(cuStreamAttachMemAsync(stream, managed, 4096, CU_MEM_ATTACH_HOST));
  EXPECT_EQ(cuStreamAttachMemAsync(stream, managed, 8, CU_MEM_ATTACH_HOST),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAttachMemAsync(stream, ordinary, 0, CU_MEM_ATTACH_GLOBAL),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamAttachMemAsync(nullptr, managed, 0, CU_MEM_ATTACH_SINGLE),
            CUDA_ERROR_INVALID_VALUE);
  // The device says that it has no concurrent managed access.
  int concurrent = -1;
  EXPECT_CUDA(
      cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device_));
  EXPECT_EQ(concurrent, 0);
  const CUmemLocation here{CU_MEM_LOCATION_TYPE_DEVICE, 0};
  EXPECT_EQ(cuMemPrefetchAsync(managed, 4096, here, 0, stream), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemAdvise(managed, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, here),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(cuMemPrefetchAsync(ordinary, 4096, here, 0, stream), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace smolvm::emulation
