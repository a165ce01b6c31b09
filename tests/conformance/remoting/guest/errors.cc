// Start-up, error names, and calls that are wrong.
#include <cstring>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {

// What a program sees first; says it all, and judges nothing.
COMMAND(devices) {
  const CUresult init = cuInit(0);
  int count = -1;
  const CUresult counted = cuDeviceGetCount(&count);
  printf("init=%d counted=%d count=%d\n", init, counted, count);
  for (int i = 0; counted == 0 && i < count; ++i) {
    CUuuid uuid;
    OK(cuDeviceGetUuid(&uuid, i));
    printf("uuid=GPU-");
    for (int byte = 0; byte < 16; ++byte) {
      printf("%s%02x", byte == 4 || byte == 6 || byte == 8 || byte == 10 ? "-" : "",
             static_cast<unsigned char>(uuid.bytes[byte]));
    }
    printf("\n");
  }
}

COMMAND(round_trip) {
  Start();
  RoundTrip(arguments.empty() ? 1 << 20 : atoi(arguments[0].c_str()), 1);
}

COMMAND(before_init) {
  int count = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  void* host = nullptr;
  WANT(3, cuDeviceGetCount(&count));
  WANT(3, cuCtxGetCurrent(&context));
  WANT(3, cuMemAlloc(&memory, 16));
  WANT(3, cuMemHostAlloc(&host, 16, 0));
  WANT(3, cuStreamSynchronize(nullptr));
  WANT(3, cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  WANT(1, cuInit(1));
  int version = 0;
  OK(cuDriverGetVersion(&version));
  CHECK(version >= 12000);
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
}

COMMAND(error_names) {
  const struct {
    CUresult code;
    const char* name;
  } kSome[] = {{CUDA_SUCCESS, "CUDA_SUCCESS"},
               {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
               {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
               {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"},
               {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"}};
  const char* text = nullptr;
  for (const auto& some : kSome) {
    OK(cuGetErrorName(some.code, &text));
    CHECK(strcmp(text, some.name) == 0);
    OK(cuGetErrorString(some.code, &text));
    CHECK(strlen(text) > 3);
  }
  WANT(1, cuGetErrorName(static_cast<CUresult>(12345), &text));
  CHECK(text == nullptr);
  WANT(1, cuGetErrorString(static_cast<CUresult>(12345), &text));
  CHECK(text == nullptr);
  WANT(1, cuGetErrorName(CUDA_SUCCESS, nullptr));
}

COMMAND(garbage_handles) {
  Start();
  CHECK(cuCtxSetCurrent(Garbage<CUcontext>()) != CUDA_SUCCESS);
  CHECK(cuCtxPushCurrent(Garbage<CUcontext>()) != CUDA_SUCCESS);
  CHECK(cuCtxDestroy(Garbage<CUcontext>()) != CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(Garbage<CUstream>()) != CUDA_SUCCESS);
  CHECK(cuStreamDestroy(Garbage<CUstream>()) != CUDA_SUCCESS);
  CHECK(cuEventQuery(Garbage<CUevent>()) != CUDA_SUCCESS);
  CHECK(cuEventDestroy(Garbage<CUevent>()) != CUDA_SUCCESS);
  CHECK(cuModuleUnload(Garbage<CUmodule>()) != CUDA_SUCCESS);
  CHECK(cuLibraryUnload(Garbage<CUlibrary>()) != CUDA_SUCCESS);
  CUfunction function = nullptr;
  CHECK(cuModuleGetFunction(&function, Garbage<CUmodule>(), "f") != CUDA_SUCCESS);
  CHECK(cuLaunchKernel(Garbage<CUfunction>(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr) !=
        CUDA_SUCCESS);
  CHECK(cuMemFree(0x1234) != CUDA_SUCCESS);
  char name[8];
  CHECK(cuDeviceGetName(name, sizeof name, 77) == CUDA_ERROR_INVALID_DEVICE);
  RoundTrip(4096, 2);
}

COMMAND(null_outputs) {
  Start();
  WANT(1, cuDeviceGetCount(nullptr));
  WANT(1, cuMemAlloc(nullptr, 16));
  WANT(1, cuStreamCreate(nullptr, 0));
  WANT(1, cuEventCreate(nullptr, 0));
  WANT(1, cuModuleGetFunction(nullptr, nullptr, nullptr));
  CUdeviceptr memory = 0, base = 0;
  size_t size = 0, total = 0;
  OK(cuMemAlloc(&memory, 512));
  OK(cuMemGetAddressRange(&base, nullptr, memory + 3));
  CHECK(base == memory);
  OK(cuMemGetAddressRange(nullptr, &size, memory + 3));
  CHECK(size == 512);
  CHECK(cuMemGetInfo(nullptr, &total) == cuMemGetInfo(&size, nullptr));
  static const char kPtx[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 g = 9;\n";
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, kPtx));
  OK(cuModuleGetGlobal(nullptr, &size, module, "g"));
  CHECK(size == 4);
  OK(cuModuleGetGlobal(&base, nullptr, module, "g"));
  uint32_t value = 0;
  OK(cuMemcpyDtoH(&value, base, 4));
  CHECK(value == 9);
  WANT(500, cuModuleGetGlobal(&base, &size, module, "h"));
  OK(cuMemGetInfo(&size, &total));
  CHECK(size > 0 && size < total);
}

COMMAND(proc_addresses) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult status{};
  CHECK(cuGetProcAddress("cuThisDoesNotExist", &found, 13000, 0, &status) == CUDA_ERROR_NOT_FOUND ||
        status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(found == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  void* plain = nullptr;
  OK(cuGetProcAddress("cuMemcpyHtoDAsync", &plain, 13000, 0, &status));
  OK(cuGetProcAddress("cuMemcpyHtoDAsync", &found, 13000,
                      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status));
  CHECK(plain != nullptr && found != nullptr && plain != found);
  OK(cuGetProcAddress("cuMemAlloc", &plain, 2000, 0, &status));
  OK(cuGetProcAddress("cuMemAlloc", &found, 13000, 0, &status));
  CHECK(found == reinterpret_cast<void*>(&cuMemAlloc));
  WANT(1, cuGetProcAddress(nullptr, &found, 13000, 0, &status));
}

COMMAND(bad_modules) {
  Start();
  static const char kWrong[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.entry f( nonsense\n";
  char log[4096];
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  memset(log, 0, sizeof log);
  WANT(218, cuModuleLoadDataEx(&module, kWrong, 2, options, values));
  CHECK(strnlen(log, sizeof log) > 10 && strnlen(log, sizeof log) < sizeof log);
  Say(log);
  WANT(218, cuModuleLoadData(&module, kWrong));
  CHECK(cuModuleLoadData(&module, "this is no module at all") != CUDA_SUCCESS);
  CHECK(cuModuleLoadData(&module, "") != CUDA_SUCCESS);
  WANT(1, cuModuleLoadData(&module, nullptr));
  WANT(1, cuModuleLoadData(nullptr, kWrong));
  // An ELF file that ends after its header; what follows it in memory is ours.
  static const unsigned char kElf[4096] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7};
  const CUresult elf = cuModuleLoadData(&module, kElf);
  CHECK(elf == 200 || elf == 209);
  // A fat binary whose body is shorter than it says.
  static const uint32_t kFatbin[16] = {0xba55ed50, 0x00100001, 32, 0, 0x01010001, 64, 0xffff, 0};
  const CUresult fatbin = cuModuleLoadFatBinary(&module, kFatbin);
  CHECK(fatbin == 200 || fatbin == 209);
  WANT(301, cuModuleLoad(&module, "/nonexistent/module.ptx"));
  CUlibrary library = nullptr;
  CHECK(cuLibraryLoadData(&library, kWrong, nullptr, nullptr, 0, nullptr, nullptr, 0) == 218);
  RoundTrip(4096, 3);
}

COMMAND(huge_allocation) {
  Start();
  CUdeviceptr memory = 0;
  size_t free = 0, total = 0;
  WANT(2, cuMemAlloc(&memory, size_t{1} << 40));
  WANT(2, cuMemAlloc(&memory, SIZE_MAX));
  WANT(2, cuMemAlloc(&memory, SIZE_MAX - 4095));
  WANT(1, cuMemAlloc(&memory, 0));
  OK(cuMemGetInfo(&free, &total));
  WANT(2, cuMemAlloc(&memory, total + 1));
  RoundTrip(1 << 16, 4);
}

}  // namespace smolvm::remoting
