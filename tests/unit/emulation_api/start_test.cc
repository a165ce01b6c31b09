// What happens around initialisation. Every case runs in a process of its own: it is fork()ed
// before cuInit.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

// The exit status of a process that runs `body` and exits with what it returns.
int InProcess(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

TEST(StartTest, NothingWorksBeforeInit) {
  EXPECT_EQ(InProcess([] {
              int count = 0, version = 0;
              CUcontext context = nullptr;
              CUdeviceptr address = 0;
              size_t bytes = 0;
              CUstreamCaptureStatus status;
              CUgraph graph = nullptr;
              const char* text = nullptr;
              if (cuDeviceGetCount(&count) != CUDA_ERROR_NOT_INITIALIZED) return 1;
              if (cuDeviceGet(nullptr, 0) != CUDA_ERROR_NOT_INITIALIZED) return 2;
              if (cuCtxCreate(&context, nullptr, 0, 0) != CUDA_ERROR_NOT_INITIALIZED) return 3;
              if (cuMemAlloc(&address, 16) != CUDA_ERROR_NOT_INITIALIZED) return 4;
              if (cuMemGetInfo(&bytes, &bytes) != CUDA_ERROR_NOT_INITIALIZED) return 5;
              if (cuStreamSynchronize(nullptr) != CUDA_ERROR_NOT_INITIALIZED) return 6;
              if (cuStreamIsCapturing(nullptr, &status) != CUDA_ERROR_NOT_INITIALIZED) return 7;
              if (cuGraphCreate(&graph, 0) != CUDA_ERROR_NOT_INITIALIZED)
                return 8;  // not implemented
              if (cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) !=
                  CUDA_ERROR_NOT_INITIALIZED)
                return 9;
              if (cuDriverGetVersion(&version) != CUDA_SUCCESS || version != CUDA_VERSION)
                return 10;
              if (cuGetErrorName(CUDA_ERROR_NO_DEVICE, &text) != CUDA_SUCCESS) return 11;
              if (cuInit(1) != CUDA_ERROR_INVALID_VALUE) return 12;
              if (cuInit(0) != CUDA_SUCCESS || cuInit(0) != CUDA_SUCCESS) return 13;
              if (cuGraphCreate(&graph, 0) != CUDA_ERROR_NOT_SUPPORTED) return 14;
              return cuDeviceGetCount(&count) == CUDA_SUCCESS && count == 1 ? 0 : 15;
            }),
            0);
}

TEST(StartTest, SettingsComeFromTheEnvironment) {
  EXPECT_EQ(InProcess([] {
              setenv("SMOLVM_CUDA_EMULATION_MEMORY", "64M", 1);
              setenv("SMOLVM_CUDA_EMULATION_CC", "8.6", 1);
              size_t bytes = 0;
              int major = 0, minor = 0;
              if (cuInit(0) != CUDA_SUCCESS || cuDeviceTotalMem(&bytes, 0) != CUDA_SUCCESS)
                return 1;
              if (bytes != size_t{64} << 20) return 2;
              cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
              cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
              return major == 8 && minor == 6 ? 0 : 3;
            }),
            0);
  EXPECT_EQ(InProcess([] {
              setenv("SMOLVM_CUDA_EMULATION_MEMORY", "plenty", 1);
              return cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 0 : 1;
            }),
            0);
  EXPECT_EQ(InProcess([] {
              setenv("SMOLVM_CUDA_EMULATION_TIER", "warp", 1);
              return cuInit(0) == CUDA_ERROR_INVALID_VALUE ? 0 : 1;
            }),
            0);
  EXPECT_EQ(InProcess([] {
              setenv("SMOLVM_CUDA_EMULATION_TIER", "scalar", 1);
              return cuInit(0) == CUDA_SUCCESS ? 0 : 1;
            }),
            0);
  EXPECT_EQ(InProcess([] {
              setenv("CUDA_VISIBLE_DEVICES", "", 1);
              return cuInit(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1;
            }),
            0);
}

TEST(StartTest, AForkedChildGetsNotInitialized) {
  EXPECT_EQ(InProcess([] {
              CUcontext context = nullptr;
              CUstream stream = nullptr;
              if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS)
                return 1;
              if (cuStreamCreate(&stream, 0) != CUDA_SUCCESS) return 2;
              std::atomic<bool> ran = false;
              cuLaunchHostFunc(
                  stream, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &ran);
              const int child = InProcess([&] {
                size_t free = 0, total = 0;
                if (cuMemGetInfo(&free, &total) != CUDA_ERROR_NOT_INITIALIZED) return 1;
                if (cuStreamSynchronize(stream) != CUDA_ERROR_NOT_INITIALIZED) return 2;
                return cuInit(0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 3;
              });
              if (child != 0) return 10 + child;
              if (cuStreamSynchronize(stream) != CUDA_SUCCESS || !ran) return 3;
              return cuCtxDestroy(context) == CUDA_SUCCESS ? 0 : 4;
            }),
            0);
}

TEST(StartTest, AtexitHandlersMayCallIt) {
  const pid_t child = fork();
  if (child == 0) {
    static CUdeviceptr address = 0;
    CUcontext context = nullptr;
    std::atexit([] {
      uint32_t value = 0;
      const bool ok = cuMemcpyDtoH(&value, address, 4) == CUDA_SUCCESS && value == 8 &&
                      cuMemFree(address) == CUDA_SUCCESS;
      _exit(ok ? 0 : 1);
    });
    if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate(&context, nullptr, 0, 0) != CUDA_SUCCESS) _exit(2);
    if (cuMemAlloc(&address, 4) != CUDA_SUCCESS || cuMemsetD32(address, 8, 1) != CUDA_SUCCESS)
      _exit(3);
    std::exit(4);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(StartTest, NamesAndStringsOfErrors) {
  const char* text = nullptr;
  EXPECT_CUDA(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text));
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  EXPECT_CUDA(cuGetErrorString(CUDA_SUCCESS, &text));
  EXPECT_STREQ(text, "no error");
  EXPECT_EQ(cuGetErrorName(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  text = "x";
  EXPECT_EQ(cuGetErrorString(static_cast<CUresult>(12345), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
  EXPECT_EQ(cuGetErrorName(CUDA_SUCCESS, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST(StartTest, FindsEntryPointsByNameAndVersion) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status;
  EXPECT_CUDA(cuGetProcAddress("cuMemAlloc", &found, 13000, 0, &status));
  EXPECT_EQ(found, dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"));
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  EXPECT_CUDA(cuGetProcAddress("cuLaunchKernel", &found, 13000,
                               CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  EXPECT_EQ(found, dlsym(RTLD_DEFAULT, "cuLaunchKernel_ptsz"));
  EXPECT_CUDA(cuGetProcAddress("cuThisDoesNotExist", &found, 13000, 0, &status));
  EXPECT_EQ(found, nullptr);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_CUDA(cuGetProcAddress("", &found, 0, 0, nullptr));
  EXPECT_CUDA(cuGetProcAddress("cuStreamWaitValue32", &found, 13000, 0, &status));
  EXPECT_NE(found, nullptr);
}

TEST(StartTest, KnowsNoExportTable) {
  const void* table = &table;
  const CUuuid id = {};
  EXPECT_EQ(cuGetExportTable(&table, &id), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(table, nullptr);
  EXPECT_EQ(cuGetExportTable(nullptr, &id), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace smolvm::emulation
