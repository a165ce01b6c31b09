// What the hand-written half of the guest does: copies, launches, what it lets go without waiting,
// deferred errors.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "tests/loopback/host.h"

namespace smolvm::loopback {
namespace {

class Client : public Loopback {
 protected:
  void SetUp() override {
    Loopback::SetUp();
    host.driver.cuMemAlloc_v2 = [&](CUdeviceptr* address, size_t) {
      *address = host.FreshMemory();
      return CUDA_SUCCESS;
    };
    host.driver.cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  }
  // A context is proved on this thread, and [address, address + size) is memory that the guest
  // knows.
  CUdeviceptr Known(size_t size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cuMemAlloc_v2(&address, size), CUDA_SUCCESS);
    host.driver.cuMemsetD8_v2 = [](CUdeviceptr, unsigned char, size_t) { return CUDA_SUCCESS; };
    EXPECT_EQ(cuMemsetD8_v2(address, 0, 1), CUDA_SUCCESS);
    return address;
  }
};

bool NobodyWaited(const std::vector<Recorded>& requests, uint32_t call_id) {
  for (auto request = requests.rbegin(); request != requests.rend(); ++request) {
    if (request->header.call_id == call_id) return request->header.flags & wire::kFlagNoReply;
  }
  ADD_FAILURE() << "no such request";
  return false;
}

TEST_F(Client, CopyToDeviceArrivesWholeAndInOrder) {
  const size_t size = 3'000'001;
  const CUdeviceptr to = Known(size);
  std::vector<char> device(size);
  host.driver.cuMemcpyHtoD_v2 = [&](CUdeviceptr at, const void* from, size_t bytes) {
    memcpy(device.data() + (at - to), from, bytes);
    return CUDA_SUCCESS;
  };
  std::vector<char> source(size);
  std::iota(source.begin(), source.end(), 1);
  ASSERT_EQ(cuMemcpyHtoD_v2(to, source.data(), size), CUDA_SUCCESS);
  const std::vector<char> before = source;
  std::fill(source.begin(), source.end(), 0);  // the bytes had been taken
  host.Settle();
  EXPECT_TRUE(device == before);
  EXPECT_TRUE(NobodyWaited(host.Requests(), 0x0400));
}

TEST_F(Client, CopyToAddressThatTheGuestDoesNotKnowIsWaitedFor) {
  host.driver.cuPointerGetAttribute = [](void*, CUpointer_attribute, CUdeviceptr) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  const char byte = 0;
  EXPECT_EQ(cuMemcpyHtoD_v2(0x1234, &byte, 1), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Client, CopyBackArrivesWhole) {
  const size_t size = 2'500'003;
  const CUdeviceptr from = Known(size);
  std::vector<char> device(size);
  std::iota(device.begin(), device.end(), 3);
  host.driver.cuMemcpyDtoH_v2 = [&](void* to, CUdeviceptr at, size_t bytes) {
    memcpy(to, device.data() + (at - from), bytes);
    return CUDA_SUCCESS;
  };
  std::vector<char> target(size);
  ASSERT_EQ(cuMemcpyDtoH_v2(target.data(), from, size), CUDA_SUCCESS);
  EXPECT_TRUE(target == device);
}

TEST_F(Client, CopyBackThatFailsOnTheWayIsNoSuccess) {
  const size_t size = 2'000'000;
  const CUdeviceptr from = Known(size);
  int pieces = 0;
  host.driver.cuMemcpyDtoH_v2 = [&](void*, CUdeviceptr, size_t) {
    return ++pieces < 3 ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  std::vector<char> target(size);
  EXPECT_EQ(cuMemcpyDtoH_v2(target.data(), from, size), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(Client, FailedCallThatNobodyWaitedForIsReportedByTheNext) {
  const CUdeviceptr at = Known(4096);
  host.driver.cuMemsetD32_v2 = [](CUdeviceptr, unsigned, size_t) { return CUDA_SUCCESS; };
  ASSERT_EQ(cuMemsetD32_v2(at, 1, 16), CUDA_SUCCESS);
  host.driver.cuMemsetD32_v2 = [](CUdeviceptr, unsigned, size_t) {
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  };
  ASSERT_EQ(cuMemsetD32_v2(at, 1, 16), CUDA_SUCCESS);
  bool copied = false;
  host.driver.cuMemcpyDtoH_v2 = [&](void*, CUdeviceptr, size_t) {
    copied = true;
    return CUDA_SUCCESS;
  };
  char stale[16] = {};
  EXPECT_EQ(cuMemcpyDtoH_v2(stale, at, sizeof stale), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(copied);
  // Reported once; what follows runs.
  EXPECT_EQ(cuMemcpyDtoH_v2(stale, at, sizeof stale), CUDA_SUCCESS);
  EXPECT_TRUE(copied);
}

TEST_F(Client, CallsAfterAFailedOneStillRun) {
  const CUdeviceptr at = Known(4096);
  std::vector<unsigned> values;
  host.driver.cuMemsetD32_v2 = [&](CUdeviceptr, unsigned value, size_t) {
    values.push_back(value);
    return value == 2 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  };
  for (unsigned value = 1; value <= 4; ++value) cuMemsetD32_v2(at, value, 1);
  EXPECT_EQ(host.Settle(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(values, (std::vector<unsigned>{1, 2, 3, 4}));
}

TEST_F(Client, AsynchronousCopyBackToPinnedMemoryArrivesBeforeTheSynchroniseReturns) {
  void* pinned = nullptr;
  host.driver.cuCtxGetDevice = [](CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  ASSERT_EQ(cuMemHostAlloc(&pinned, 1 << 21, 0), CUDA_SUCCESS);
  const CUdeviceptr from = Known(1 << 21);
  std::atomic<bool> finished{false};
  host.driver.cuEventCreate = [](CUevent* event, unsigned) {
    *event = Fake<CUevent>(77);
    return CUDA_SUCCESS;
  };
  host.driver.cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  host.driver.cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  host.driver.cuEventQuery = [&](CUevent) {
    return finished ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  host.driver.cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr, size_t bytes, CUstream) {
    memset(to, 0x6b, bytes);
    return CUDA_SUCCESS;
  };
  ASSERT_EQ(cuMemcpyDtoHAsync_v2(pinned, from, 1 << 21, nullptr), CUDA_SUCCESS);
  host.Settle();
  EXPECT_EQ(static_cast<char*>(pinned)[0], 0);  // its stream has not finished it
  finished = true;
  ASSERT_EQ(cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<char*>(pinned)[0], 0x6b);
  EXPECT_EQ(static_cast<char*>(pinned)[(1 << 21) - 1], 0x6b);
  EXPECT_EQ(cuMemFreeHost(pinned), CUDA_SUCCESS);
}

TEST_F(Client, LaunchPacksParametersByTheirLayout) {
  host.driver.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    *function = Fake<CUfunction>(9);
    return CUDA_SUCCESS;
  };
  host.driver.cuFuncGetParamInfo = [](CUfunction, size_t i, size_t* offset, size_t* size) {
    static constexpr size_t kOffsets[] = {0, 8, 16}, kSizes[] = {1, 8, 4};
    if (i >= 3) return CUDA_ERROR_INVALID_VALUE;
    *offset = kOffsets[i];
    *size = kSizes[i];
    return CUDA_SUCCESS;
  };
  CUfunction function = nullptr;
  ASSERT_EQ(cuModuleGetFunction(&function, host.Handle<CUmodule>(8), "kernel"), CUDA_SUCCESS);
  std::string block;
  host.driver.cuLaunchKernel = [&](CUfunction f, unsigned gx, unsigned, unsigned, unsigned bx,
                                   unsigned, unsigned, unsigned shared, CUstream, void** params,
                                   void** extra) {
    EXPECT_EQ(f, Fake<CUfunction>(9));
    EXPECT_EQ(gx, 5u);
    EXPECT_EQ(bx, 64u);
    EXPECT_EQ(shared, 12u);
    EXPECT_EQ(params, nullptr);
    block.assign(static_cast<char*>(extra[1]), *static_cast<size_t*>(extra[3]));
    return CUDA_SUCCESS;
  };
  char first = 'x';
  uint64_t second = 0x1122334455667788;
  float third = 1.5f;
  void* params[] = {&first, &second, &third};
  for (int launch = 0; launch < 3; ++launch) {
    ASSERT_EQ(cuLaunchKernel(function, 5, 1, 1, 64, 1, 1, 12, nullptr, params, nullptr),
              CUDA_SUCCESS);
  }
  host.Settle();
  EXPECT_EQ(host.Count("cuLaunchKernel"), 3u);
  ASSERT_EQ(block.size(), 20u);
  EXPECT_EQ(block[0], 'x');
  EXPECT_EQ(memcmp(block.data() + 8, &second, 8), 0);
  EXPECT_EQ(memcmp(block.data() + 16, &third, 4), 0);
  void* extra[] = {CU_LAUNCH_PARAM_END};
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Client, ThreeDimensionalCopyTakesAndPlacesRows) {
  std::vector<char> seen;
  host.driver.cuMemcpy3DAsync_v2 = [&](const CUDA_MEMCPY3D* copy, CUstream) {
    EXPECT_EQ(copy->srcMemoryType, CU_MEMORYTYPE_HOST);
    EXPECT_EQ(copy->srcPitch, 3u);
    seen.assign(static_cast<const char*>(copy->srcHost),
                static_cast<const char*>(copy->srcHost) + 6);
    return CUDA_SUCCESS;
  };
  const char rows[] = "abcXXdefXX";
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = rows;
  copy.srcPitch = 5;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = host.DeviceMemory();
  copy.dstPitch = 64;
  copy.WidthInBytes = 3;
  copy.Height = 2;
  ASSERT_EQ(cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  EXPECT_EQ(std::string(seen.begin(), seen.end()), "abcdef");
  copy.dstPitch = 2;
  EXPECT_EQ(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Client, ThreadsAreServedOnLanesOfTheirOwn) {
  std::mutex mutex;
  std::set<std::thread::id> lanes;
  host.driver.cuCtxGetFlags = [&](unsigned* flags) {
    const std::lock_guard lock(mutex);
    lanes.insert(std::this_thread::get_id());
    *flags = 3;
    return CUDA_SUCCESS;
  };
  std::vector<std::thread> threads;
  std::atomic<int> served{0};
  for (int i = 0; i < 300; ++i) {
    threads.emplace_back([&] {
      unsigned flags = 0;
      for (int k = 0; k < 5; ++k) served += cuCtxGetFlags(&flags) == CUDA_SUCCESS && flags == 3;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, 1500);
  EXPECT_GT(lanes.size(), 1u);
}

TEST_F(Client, PinnedMemoryIsAnsweredInTheGuest) {
  host.driver.cuCtxGetDevice = [](CUdevice* device) {
    *device = 0;
    return CUDA_SUCCESS;
  };
  char* memory = static_cast<char*>(aligned_alloc(4096, 8192));
  EXPECT_EQ(cuMemHostRegister_v2(memory, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(cuMemHostRegister_v2(memory + 1, 5000, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuMemHostRegister_v2(memory + 4000, 100, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  unsigned type = 0;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                  reinterpret_cast<CUdeviceptr>(memory + 9)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  EXPECT_EQ(cuMemHostUnregister(memory + 1), CUDA_SUCCESS);
  CUdeviceptr mapped = 0;
  EXPECT_EQ(cuMemHostGetDevicePointer_v2(&mapped, memory, 0), CUDA_ERROR_INVALID_VALUE);
  free(memory);
}

TEST_F(Client, GarbageHandlesAreErrors) {
  EXPECT_EQ(cuCtxSetCurrent(reinterpret_cast<CUcontext>(-1)), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuStreamSynchronize(reinterpret_cast<CUstream>(-1)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(0x1234)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuModuleUnload(reinterpret_cast<CUmodule>(0x100000000000)), CUDA_ERROR_INVALID_HANDLE);
  // A handle of one kind is none of another.
  EXPECT_EQ(cuEventQuery(reinterpret_cast<CUevent>(host.Handle<CUstream>(5))),
            CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace smolvm::loopback
