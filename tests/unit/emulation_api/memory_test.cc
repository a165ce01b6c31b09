#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

using MemoryTest = EmulationTest;

TEST_F(MemoryTest, AllocatesZeroedAlignedMemory) {
  for (const size_t bytes : {size_t{1}, size_t{512}, size_t{4097}, size_t{3} << 20}) {
    const CUdeviceptr address = Alloc(bytes);
    EXPECT_EQ(address % 512, 0u);
    std::vector<char> content(bytes, 7);
    EXPECT_CUDA(cuMemcpyDtoH(content.data(), address, bytes));
    EXPECT_EQ(std::count(content.begin(), content.end(), 0), static_cast<long>(bytes));
    EXPECT_CUDA(cuMemsetD8(address, 0xff, bytes));
    EXPECT_CUDA(cuMemFree(address));
  }
}

TEST_F(MemoryTest, AccountsForWhatIsFree) {
  size_t before = 0, during = 0, after = 0, total = 0;
  EXPECT_CUDA(cuMemGetInfo(&before, &total));
  const CUdeviceptr address = Alloc(8 << 20);
  EXPECT_CUDA(cuMemGetInfo(&during, &total));
  EXPECT_EQ(before - during, size_t{8} << 20);
  EXPECT_CUDA(cuMemFree(address));
  EXPECT_CUDA(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  EXPECT_EQ(cuMemGetInfo(nullptr, &total), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemGetInfo(&after, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, RefusesWhatDoesNotFit) {
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, size_t{2} << 30), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&address, size_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&address, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  size_t pitch = 0;
  EXPECT_EQ(cuMemAllocPitch(&address, &pitch, size_t{1} << 62, 8, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocPitch(&address, &pitch, 512, SIZE_MAX / 2, 4), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuMemAllocPitch(&address, &pitch, 16, 8, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, FreesOnlyWhatItGave) {
  const CUdeviceptr address = Alloc(4096);
  EXPECT_EQ(cuMemFree(address + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemFree(0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemFree(address));
  EXPECT_EQ(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, FreeWaitsForUnfinishedWork) {
  const CUstream stream = NewStream(CU_STREAM_NON_BLOCKING);
  const CUdeviceptr address = Alloc(1 << 20);
  Gate gate(stream);
  EXPECT_CUDA(cuMemsetD8Async(address, 1, 1 << 20, stream));
  std::atomic<bool> freed = false;
  std::thread other([&] {
    EXPECT_CUDA(cuCtxSetCurrent(context_));
    EXPECT_CUDA(cuMemFree(address));
    freed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(freed);
  gate.Open();
  other.join();
}

TEST_F(MemoryTest, KnowsRanges) {
  const CUdeviceptr address = Alloc(1000);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  EXPECT_CUDA(cuMemGetAddressRange(&base, &bytes, address + 999));
  EXPECT_EQ(base, address);
  EXPECT_EQ(bytes, 1000u);
  EXPECT_CUDA(cuMemGetAddressRange(nullptr, nullptr, address));
  EXPECT_EQ(cuMemGetAddressRange(&base, &bytes, address + 1000), CUDA_ERROR_NOT_FOUND);
}

TEST_F(MemoryTest, PitchFitsRows) {
  CUdeviceptr address = 0;
  size_t pitch = 0, bytes = 0;
  ASSERT_CUDA(cuMemAllocPitch(&address, &pitch, 700, 3, 4));
  EXPECT_EQ(pitch, 1024u);
  EXPECT_CUDA(cuMemGetAddressRange(nullptr, &bytes, address));
  EXPECT_EQ(bytes, 3072u);
}

TEST_F(MemoryTest, PinnedHostMemory) {
  void* host = nullptr;
  ASSERT_CUDA(cuMemHostAlloc(&host, 10000, CU_MEMHOSTALLOC_PORTABLE));
  unsigned flags = 0;
  EXPECT_CUDA(cuMemHostGetFlags(&flags, static_cast<char*>(host) + 5000));
  EXPECT_EQ(flags, CU_MEMHOSTALLOC_PORTABLE);
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  ASSERT_EQ(write(pipes[1], "hello", 5), 5);
  EXPECT_EQ(read(pipes[0], host, 5), 5);
  EXPECT_EQ(std::memcmp(host, "hello", 5), 0);
  close(pipes[0]);
  close(pipes[1]);
  CUdeviceptr mapped = 0;
  EXPECT_EQ(cuMemHostGetDevicePointer(&mapped, host, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuMemFreeHost(static_cast<char*>(host) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemFreeHost(host));
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostAlloc(&host, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostAlloc(&host, 16, 0x80), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostAlloc(&host, size_t{1} << 50, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryTest, RegisteredHostMemory) {
  std::vector<char> memory(64 << 10);
  char* unaligned = memory.data() + 13;
  EXPECT_EQ(cuMemHostRegister(unaligned, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister(nullptr, 16, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister(unaligned, SIZE_MAX, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemHostRegister(unaligned, 30000, 0));
  EXPECT_EQ(cuMemHostRegister(unaligned, 30000, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostRegister(unaligned + 29999, 10, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuMemHostRegister(memory.data(), 14, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_CUDA(cuMemHostRegister(unaligned + 30000, 10, 0));
  EXPECT_EQ(cuMemHostUnregister(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostUnregister(memory.data()), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuMemHostUnregister(unaligned + 1), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(cuMemFreeHost(unaligned), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemHostUnregister(unaligned));
  EXPECT_CUDA(cuMemHostUnregister(unaligned + 30000));
  EXPECT_EQ(cuMemHostUnregister(unaligned), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_F(MemoryTest, OnlyMappedMemoryIsRegistered) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapped =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  char* const base = static_cast<char*>(mapped);
  munmap(base + page, page);
  EXPECT_EQ(cuMemHostRegister(base + page, page, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostRegister(base + 8, page, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemHostRegister(base + 8, page - 8, 0));
  EXPECT_CUDA(cuMemHostUnregister(base + 8));
  munmap(base, page);
}

TEST_F(MemoryTest, PointerAttributesOfDeviceMemory) {
  const CUdeviceptr address = Alloc(1000);
  unsigned type = 0, managed = 9;
  int ordinal = -1;
  CUcontext context = nullptr;
  CUdeviceptr start = 0, device = 0;
  size_t size = 0;
  unsigned long long id = 0;
  void* data[] = {&type, &managed, &ordinal, &context, &start, &size, &device, &id};
  CUpointer_attribute attributes[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_IS_MANAGED,
      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,   CU_POINTER_ATTRIBUTE_CONTEXT,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER,   CU_POINTER_ATTRIBUTE_BUFFER_ID};
  ASSERT_CUDA(cuPointerGetAttributes(8, attributes, data, address + 10));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(managed, 0u);
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(start, address);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(device, address + 10);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(cuPointerGetAttribute(data[0], CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuPointerGetAttribute(data[0], static_cast<CUpointer_attribute>(99), address),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(MemoryTest, PointerAttributesOfOtherMemory) {
  void* host = nullptr;
  ASSERT_CUDA(cuMemAllocHost(&host, 64));
  unsigned type = 0;
  EXPECT_CUDA(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    reinterpret_cast<CUdeviceptr>(host)));
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  int local = 0;
  const auto unknown = reinterpret_cast<CUdeviceptr>(&local);
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown),
            CUDA_ERROR_INVALID_VALUE);
  void* data[] = {&type};
  CUpointer_attribute attribute = CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
  EXPECT_CUDA(cuPointerGetAttributes(1, &attribute, data, unknown));
  EXPECT_EQ(type, 0u);
  EXPECT_CUDA(cuMemFreeHost(host));
}

TEST_F(MemoryTest, StreamOrderedAllocation) {
  const CUstream stream = NewStream();
  CUmemoryPool pool = nullptr;
  ASSERT_CUDA(cuDeviceGetDefaultMemPool(&pool, device_));
  const auto used = [&] {
    cuuint64_t bytes = 0;
    EXPECT_CUDA(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes));
    return bytes;
  };
  const auto before = used();
  CUdeviceptr address = 0;
  ASSERT_CUDA(cuMemAllocAsync(&address, 1 << 20, stream));
  EXPECT_EQ(used(), before + (1 << 20));
  EXPECT_CUDA(cuMemsetD32Async(address, 77, 1 << 18, stream));
  uint32_t last = 0;
  EXPECT_CUDA(cuMemcpyDtoHAsync(&last, address + (1 << 20) - 4, 4, stream));
  Gate gate(stream);
  EXPECT_CUDA(cuMemFreeAsync(address, stream));
  EXPECT_EQ(cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(used(), before + (1 << 20));  // not before the stream gets there
  gate.Open();
  EXPECT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(last, 77u);
  EXPECT_EQ(used(), before);
  EXPECT_EQ(cuMemAllocAsync(&address, 0, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemAllocAsync(&address, size_t{1} << 40, stream), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryTest, PoolsOfItsOwn) {
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device_}};
  properties.maxSize = 1 << 20;
  CUmemoryPool pool = nullptr, current = nullptr, fallback = nullptr;
  ASSERT_CUDA(cuMemPoolCreate(&pool, &properties));
  EXPECT_CUDA(cuDeviceSetMemPool(device_, pool));
  EXPECT_CUDA(cuDeviceGetMemPool(&current, device_));
  EXPECT_EQ(current, pool);
  CUdeviceptr first = 0, second = 0;
  EXPECT_CUDA(cuMemAllocAsync(&first, 600 << 10, nullptr));
  CUmemoryPool of = nullptr;
  EXPECT_CUDA(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first));
  EXPECT_EQ(of, pool);
  EXPECT_EQ(cuMemAllocFromPoolAsync(&second, 600 << 10, pool, nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  cuuint64_t threshold = 12345, read = 0;
  EXPECT_CUDA(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
  EXPECT_CUDA(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &read));
  EXPECT_EQ(read, 12345u);
  EXPECT_CUDA(cuMemPoolTrimTo(pool, 0));
  EXPECT_CUDA(cuMemPoolDestroy(pool));
  EXPECT_EQ(Word(first), 0u);  // its memory outlives it
  EXPECT_CUDA(cuDeviceGetMemPool(&current, device_));
  EXPECT_CUDA(cuDeviceGetDefaultMemPool(&fallback, device_));
  EXPECT_EQ(current, fallback);
  EXPECT_EQ(cuMemPoolDestroy(fallback), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuMemFree(first));
}

}  // namespace
}  // namespace smolvm::emulation
