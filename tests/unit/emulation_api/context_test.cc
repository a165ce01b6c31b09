#include <algorithm>
#include <thread>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

using ContextTest = EmulationTest;

CUcontext Current() {
  CUcontext context = nullptr;
  EXPECT_CUDA(cuCtxGetCurrent(&context));
  return context;
}

TEST_F(ContextTest, PushesAndPops) {
  EXPECT_EQ(Current(), context_);
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, CU_CTX_SCHED_YIELD, device_));
  EXPECT_EQ(Current(), other);
  unsigned flags = 0;
  EXPECT_CUDA(cuCtxGetFlags(&flags));
  EXPECT_EQ(flags, CU_CTX_SCHED_YIELD);
  CUcontext popped = nullptr;
  EXPECT_CUDA(cuCtxPopCurrent(&popped));
  EXPECT_EQ(popped, other);
  EXPECT_EQ(Current(), context_);
  EXPECT_CUDA(cuCtxPushCurrent(other));
  EXPECT_CUDA(cuCtxSetCurrent(context_));  // replaces the top
  EXPECT_CUDA(cuCtxPopCurrent(&popped));
  EXPECT_EQ(Current(), context_);
  EXPECT_CUDA(cuCtxDestroy(other));
}

TEST_F(ContextTest, WithoutOneCallsAreRefused) {
  CUcontext popped = nullptr;
  ASSERT_CUDA(cuCtxPopCurrent(&popped));
  EXPECT_EQ(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
  size_t free = 0, total = 0;
  EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Current(), nullptr);
  EXPECT_CUDA(cuCtxPushCurrent(context_));
}

TEST_F(ContextTest, GarbageHandlesAreErrors) {
  const auto garbage = Garbage<CUcontext>();
  unsigned version = 0;
  EXPECT_EQ(cuCtxSetCurrent(garbage), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent(garbage), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxDestroy(garbage), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxGetApiVersion(garbage, &version), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxEnablePeerAccess(garbage, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuCtxPushCurrent(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuStreamSynchronize(Garbage<CUstream>()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuStreamDestroy(Garbage<CUstream>()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(Garbage<CUevent>()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(Garbage<CUmodule>()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLibraryUnload(Garbage<CUlibrary>()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(Garbage<CUfunction>(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemPoolDestroy(Garbage<CUmemoryPool>()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Current(), context_);
}

TEST_F(ContextTest, DestroyedElsewhereIsNoticed) {
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  std::thread([&] { EXPECT_CUDA(cuCtxDestroy(other)); }).join();
  EXPECT_EQ(Current(), other);
  size_t free = 0, total = 0;
  EXPECT_EQ(cuMemGetInfo(&free, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cuCtxDestroy(other), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext popped = nullptr;
  EXPECT_CUDA(cuCtxPopCurrent(&popped));
  EXPECT_CUDA(cuMemGetInfo(&free, &total));
}

TEST_F(ContextTest, DestroyGivesEverythingBack) {
  size_t before = 0, after = 0, total = 0;
  ASSERT_CUDA(cuMemGetInfo(&before, &total));
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  CUdeviceptr address = 0;
  EXPECT_CUDA(cuMemAlloc(&address, 1 << 20));
  EXPECT_CUDA(cuMemAllocAsync(&address, 1 << 20, nullptr));
  void* host = nullptr;
  EXPECT_CUDA(cuMemHostAlloc(&host, 4096, 0));
  CUmodule module = nullptr;
  EXPECT_CUDA(cuModuleLoadData(&module, kImage));
  CUstream stream = nullptr;
  EXPECT_CUDA(cuStreamCreate(&stream, 0));
  CUevent event = nullptr;
  EXPECT_CUDA(cuEventCreate(&event, 0));
  EXPECT_CUDA(cuCtxDestroy(other));
  EXPECT_CUDA(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  EXPECT_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(module), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, KeepsLimitsAndSettings) {
  size_t value = 0;
  EXPECT_CUDA(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4000));
  EXPECT_CUDA(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
  EXPECT_GE(value, 4000u);
  EXPECT_EQ(cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), CUDA_ERROR_UNSUPPORTED_LIMIT);
  EXPECT_EQ(cuCtxGetLimit(&value, static_cast<CUlimit>(77)), CUDA_ERROR_INVALID_VALUE);
  CUfunc_cache config = CU_FUNC_CACHE_PREFER_NONE;
  EXPECT_CUDA(cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
  EXPECT_CUDA(cuCtxGetCacheConfig(&config));
  EXPECT_EQ(config, CU_FUNC_CACHE_PREFER_L1);
  int least = -1, greatest = 1;
  EXPECT_CUDA(cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(least, 0);
  EXPECT_LT(greatest, 0);
  EXPECT_CUDA(cuCtxGetStreamPriorityRange(nullptr, nullptr));
  unsigned version = 0;
  EXPECT_CUDA(cuCtxGetApiVersion(context_, &version));
  EXPECT_EQ(version, 3020u);
  EXPECT_EQ(cuCtxSetFlags(0x4000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuCtxSetFlags(7), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(ContextTest, IdsAreUnique) {
  unsigned long long first = 0, second = 0;
  EXPECT_CUDA(cuCtxGetId(context_, &first));
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  EXPECT_CUDA(cuCtxGetId(nullptr, &second));
  EXPECT_NE(first, second);
  EXPECT_CUDA(cuCtxDestroy(other));
}

TEST_F(ContextTest, PrimaryIsSharedAndCounted) {
  unsigned flags = 9;
  int active = 9;
  EXPECT_CUDA(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(active, 0);
  EXPECT_EQ(cuDevicePrimaryCtxRelease(device_), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CUDA(cuDevicePrimaryCtxSetFlags(device_, CU_CTX_SCHED_SPIN));
  CUcontext first = nullptr, second = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&first, device_));
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&second, device_));
  EXPECT_EQ(first, second);
  EXPECT_EQ(cuCtxDestroy(first), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_CUDA(cuDevicePrimaryCtxGetState(device_, &flags, &active));
  EXPECT_EQ(active, 1);
  EXPECT_EQ(flags, CU_CTX_SCHED_SPIN);
  EXPECT_CUDA(cuCtxPushCurrent(first));
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(device_));
  Alloc(64);
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(device_));
  CUdeviceptr address = 0;
  EXPECT_EQ(cuMemAlloc(&address, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_CUDA(cuDevicePrimaryCtxSetFlags(device_, 0));
}

// Alloc → copy → reset → alloc → copy; a library that was loaded before still launches, with fresh
// variables.
TEST_F(ContextTest, PrimaryResetStartsAnew) {
  CUcontext primary = nullptr;
  ASSERT_CUDA(cuDevicePrimaryCtxRetain(&primary, device_));
  ASSERT_CUDA(cuCtxPushCurrent(primary));
  CUlibrary library = nullptr;
  ASSERT_CUDA(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  ASSERT_CUDA(cuLibraryGetKernel(&kernel, library, "increment"));
  for (int round = 0; round < 3; ++round) {
    CUdeviceptr address = Alloc(4096), counter = 0;
    EXPECT_CUDA(cuMemsetD32(address, 5, 1));
    void* params[] = {&address};
    EXPECT_CUDA(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, nullptr,
                               params, nullptr));
    EXPECT_EQ(Word(address), 6u);
    EXPECT_CUDA(cuLibraryGetGlobal(&counter, nullptr, library, "counter"));
    EXPECT_EQ(Word(counter), 0u);
    EXPECT_CUDA(cuMemsetD32(counter, 9, 1));
    EXPECT_CUDA(cuDevicePrimaryCtxReset(device_));
    uint32_t word = 0;
    EXPECT_EQ(cuMemcpyDtoH(&word, address, 4), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_CUDA(cuLibraryUnload(library));
  EXPECT_CUDA(cuDevicePrimaryCtxRelease(device_));
}

TEST_F(ContextTest, WorksFromManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int i = 0; i < 300; ++i) {
    threads.emplace_back([&, i] {
      bool ok = cuCtxSetCurrent(context_) == CUDA_SUCCESS;
      CUdeviceptr address = 0;
      ok = ok && cuMemAlloc(&address, 4096) == CUDA_SUCCESS;
      ok = ok && cuMemsetD32Async(address, static_cast<unsigned>(i), 4, CU_STREAM_PER_THREAD) ==
                     CUDA_SUCCESS;
      int value = -1;
      ok = ok && cuMemcpyDtoHAsync(&value, address + 12, 4, CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
      ok = ok && cuStreamSynchronize(CU_STREAM_PER_THREAD) == CUDA_SUCCESS && value == i;
      ok = ok && cuMemFree(address) == CUDA_SUCCESS;
      failures += !ok;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
}

}  // namespace
}  // namespace smolvm::emulation
