// Memory of the host and of the device.
#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {

// A copy from where nothing is fails, and the session goes on.
COMMAND(unmapped_sources) {
  Start();
  CUdeviceptr device = 0;
  OK(cuMemAlloc(&device, 1 << 21));
  char small[64] = {};
  WANT(1, cuMemcpyHtoD(device, small, size_t{1} << 40));
  WANT(1, cuMemcpyHtoD(device, small, SIZE_MAX));
  WANT(1, cuMemcpyHtoDAsync(device, small, SIZE_MAX, nullptr));
  WANT(1, cuMemcpyHtoD(device, reinterpret_cast<void*>(4096), 1 << 21));
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_HOST;
  flat.srcHost = small;
  flat.srcPitch = 10;
  flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  flat.dstDevice = device;
  flat.dstPitch = 100;
  flat.WidthInBytes = 10;
  flat.Height = 5;
  OK(cuMemcpy2D(&flat));
  flat.srcXInBytes = SIZE_MAX;
  WANT(1, cuMemcpy2D(&flat));
  flat.srcXInBytes = 0;
  flat.srcHost = reinterpret_cast<void*>(4096);
  flat.srcPitch = flat.WidthInBytes = flat.dstPitch = 4096;
  WANT(1, cuMemcpy2D(&flat));
  OK(cuMemcpyHtoD(device, small, sizeof small));
}

COMMAND(host_register) {
  Start();
  std::vector<char> memory(1 << 16);
  char* unaligned = memory.data() + 17;
  OK(cuMemHostRegister(unaligned, 10001, 0));
  WANT(712, cuMemHostRegister(unaligned + 100, 100, 0));
  WANT(712, cuMemHostRegister(unaligned - 5, 6, 0));
  OK(cuMemHostUnregister(unaligned));
  WANT(713, cuMemHostUnregister(unaligned));
  WANT(713, cuMemHostUnregister(memory.data()));
  WANT(1, cuMemHostRegister(unaligned, 0, 0));
  WANT(1, cuMemHostRegister(unaligned, SIZE_MAX, 0));
  WANT(1, cuMemHostRegister(nullptr, 16, 0));
  OK(cuMemHostRegister(unaligned, 10001, 0));
  // Registered memory takes part in asynchronous copies.
  CUdeviceptr device = 0;
  OK(cuMemAlloc(&device, 10001));
  OK(cuMemsetD8(device, 0x5a, 10001));
  OK(cuMemcpyDtoHAsync(unaligned, device, 10001, nullptr));
  OK(cuStreamSynchronize(nullptr));
  CHECK(unaligned[0] == 0x5a && unaligned[10000] == 0x5a && unaligned[10001] == 0);
  OK(cuMemHostUnregister(unaligned));
}

// What is submitted behind a copy back neither changes its bytes nor takes its source away, in the
// copy's own stream, in another, and from another thread.
COMMAND(copies_back_in_order) {
  constexpr size_t kBytes = size_t{4} << 20;
  const CUcontext context = Start();
  unsigned char* pinned = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 2 * kBytes, 0));
  CUstream stream = nullptr, other = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_DEFAULT));
  CUdeviceptr device = 0;
  OK(cuMemAlloc(&device, kBytes));
  const auto holds = [&](size_t at, unsigned char value) {
    return pinned[at] == value && pinned[at + kBytes / 2] == value &&
           pinned[at + kBytes - 1] == value;
  };
  for (CUstream each : {stream, other, CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    OK(cuMemsetD8Async(device, 1, kBytes, each));
    OK(cuMemcpyDtoHAsync(pinned, device, kBytes, each));
    OK(cuMemsetD8Async(device, 2, kBytes, each));
    OK(cuMemcpyDtoHAsync(pinned + kBytes, device, kBytes, each));
    OK(cuStreamSynchronize(each));
    CHECK(holds(0, 1) && holds(kBytes, 2));
  }
  // The legacy stream waits for the blocking one.
  OK(cuMemcpyDtoHAsync(pinned, device, kBytes, other));
  OK(cuMemsetD8(device, 3, kBytes));
  OK(cuStreamSynchronize(other));
  CHECK(holds(0, 2));
  // A thread that has no context when the copy is asked for.
  OK(cuMemcpyDtoHAsync(pinned, device, kBytes, stream));
  std::thread([&] {
    OK(cuCtxSetCurrent(context));
    OK(cuMemsetD8Async(device, 4, kBytes, stream));
  }).join();
  OK(cuStreamSynchronize(stream));
  CHECK(holds(0, 3));
  OK(cuMemcpyDtoHAsync(pinned, device, kBytes, stream));
  OK(cuMemFree(device));
  OK(cuStreamSynchronize(stream));
  CHECK(holds(0, 4));
  OK(cuMemFreeHost(pinned));
}

COMMAND(read_into_pinned) {
  Start();
  char* pinned = nullptr;
  OK(cuMemHostAlloc(reinterpret_cast<void**>(&pinned), 1 << 16, 0));
  const int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC);
  memset(pinned, 1, 1 << 16);
  CHECK(read(zero, pinned, 1 << 16) == 1 << 16);
  FILE* file = fdopen(zero, "r");
  memset(pinned, 1, 1 << 16);
  CHECK(fread(pinned, 1, 1 << 16, file) == 1 << 16);
  CHECK(pinned[0] == 0 && pinned[(1 << 16) - 1] == 0);
  fclose(file);
  OK(cuMemFreeHost(pinned));
}

COMMAND(pointer_attributes) {
  const CUcontext context = Start();
  CUdeviceptr memory = 0, base = 0;
  OK(cuMemAlloc(&memory, 1000));
  const CUdeviceptr inside = memory + 500;
  unsigned type = 0;
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  int ordinal = -1;
  OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside));
  CHECK(ordinal == 0);
  OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  CHECK(base == memory);
  size_t size = 0;
  OK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside));
  CHECK(size == 1000);
  CUcontext of = nullptr;
  OK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
  CHECK(of == context);
  void* pinned = nullptr;
  OK(cuMemHostAlloc(&pinned, 4096, 0));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                           reinterpret_cast<CUdeviceptr>(pinned)));
  CHECK(type == CU_MEMORYTYPE_HOST);
  int plain = 0;
  WANT(1, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                reinterpret_cast<CUdeviceptr>(&plain)));
  OK(cuMemFree(memory));
  WANT(1, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
}

COMMAND(reset) {
  OK(cuInit(0));
  CUcontext context = nullptr;
  static const char kPtx[] =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 g = 9;\n"
      ".visible .entry nothing()\n{\n  ret;\n}\n";
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  for (unsigned round = 0; round < 3; ++round) {
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    if (!library) {
      OK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
      OK(cuLibraryGetKernel(&kernel, library, "nothing"));
    }
    RoundTrip(100'000, round);
    CUdeviceptr left = 0;
    OK(cuMemAlloc(&left, 100'000));
    const CUresult launched = cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1,
                                             0, nullptr, nullptr, nullptr);
#ifdef SMOLVM_KERNELS_RUN
    OK(launched);
    OK(cuCtxSynchronize());
#else
    // This build's device refuses it; the host's driver, which this program may be given, does not.
    CHECK(launched == CUDA_ERROR_NOT_SUPPORTED || launched == CUDA_SUCCESS);
#endif
    OK(cuDevicePrimaryCtxReset(0));
    char byte = 0;
    CHECK(cuMemcpyDtoH(&byte, left, 1) != CUDA_SUCCESS);
  }
}

// Handles and memory for another session to try.
COMMAND(owner) {
  Start();
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  OK(cuMemAlloc(&memory, 4096));
  OK(cuMemsetD8(memory, 0x77, 4096));
  OK(cuStreamCreate(&stream, 0));
  OK(cuEventCreate(&event, 0));
  OK(cuModuleLoadData(&module,
                      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f()\n{\n"
                      "  ret;\n}\n"));
  OK(cuModuleGetFunction(&function, module, "f"));
  printf("handles %llu %p %p %p %p\n", memory, static_cast<void*>(stream),
         static_cast<void*>(event), static_cast<void*>(module), static_cast<void*>(function));
  Say("ready");
  AwaitInputEnd();
  char back[4096];
  OK(cuMemcpyDtoH(back, memory, sizeof back));
  for (const char byte : back) CHECK(byte == 0x77);
  OK(cuStreamSynchronize(stream));
  OK(cuEventSynchronize(event));
  OK(cuModuleUnload(module));
}

COMMAND(intruder) {
  Start();
  CHECK(arguments.size() == 5);
  const auto number = [&](int i) { return strtoull(arguments[i].c_str(), nullptr, 0); };
  const CUdeviceptr memory = number(0);
  char bytes[4096] = {};
  CHECK(cuMemcpyDtoH(bytes, memory, sizeof bytes) != CUDA_SUCCESS);
  CHECK(cuMemcpyHtoD(memory, bytes, sizeof bytes) != CUDA_SUCCESS);
  CHECK(cuMemFree(memory) != CUDA_SUCCESS);
  CHECK(cuStreamSynchronize(reinterpret_cast<CUstream>(number(1))) != CUDA_SUCCESS);
  CHECK(cuStreamDestroy(reinterpret_cast<CUstream>(number(1))) != CUDA_SUCCESS);
  CHECK(cuEventDestroy(reinterpret_cast<CUevent>(number(2))) != CUDA_SUCCESS);
  CHECK(cuModuleUnload(reinterpret_cast<CUmodule>(number(3))) != CUDA_SUCCESS);
  CHECK(cuLaunchKernel(reinterpret_cast<CUfunction>(number(4)), 1, 1, 1, 1, 1, 1, 0, nullptr,
                       nullptr, nullptr) != CUDA_SUCCESS);
  RoundTrip(4096, 5);
}

// A session that may hold 1 MiB (--memory-limit 1M), by whatever call it asks.
COMMAND(memory_limit) {
  const CUcontext context = Start();
  CUdeviceptr memory = 0, more = 0;
  size_t pitch = 0;
  const auto fits = [&](size_t bytes) {
    OK(cuMemAlloc(&memory, bytes));
    OK(cuMemFree(memory));
  };
  WANT(2, cuMemAlloc(&memory, (1 << 20) + 1));
  WANT(2, cuMemAllocPitch(&memory, &pitch, 1 << 20, 2, 4));
  WANT(2, cuMemAllocPitch(&memory, &pitch, 1, 1 << 14, 4));  // it is the pitch that is too much
  WANT(2, cuMemAllocAsync(&memory, (1 << 20) + 1, nullptr));
  fits(1 << 20);
  OK(cuMemAllocPitch(&memory, &pitch, 1000, 600, 4));
  WANT(2, cuMemAlloc(&more, (1 << 20) - 600 * pitch + 1));
  OK(cuMemFree(memory));

  const auto variable = [](const char* size) {
    return ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .b8 v[" +
           std::string(size) + "];\n";
  };
  const std::string large = variable("1200000"), small = variable("700000");
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const auto load_library = [&](const void* image) {
    return cuLibraryLoadData(&library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  WANT(2, cuModuleLoadData(&module, large.c_str()));
  WANT(2, load_library(large.c_str()));
  WANT(2, cuModuleLoadData(&module, variable("600000+600000").c_str()));
  OK(cuModuleLoadData(&module, small.c_str()));
  WANT(2, cuMemAlloc(&memory, 1 << 19));
  WANT(2, load_library(small.c_str()));
  OK(cuModuleUnload(module));
  OK(load_library(small.c_str()));
  WANT(2, cuModuleLoadData(&module, small.c_str()));
  OK(cuLibraryUnload(library));

  CUlinkState link = nullptr;
  void* image = nullptr;
  size_t bytes = 0;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  OK(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(large.c_str()), large.size() + 1,
                   "large", 0, nullptr, nullptr));
  OK(cuLinkComplete(link, &image, &bytes));
  WANT(2, cuModuleLoadData(&module, image));
  OK(cuLinkDestroy(link));

  // What a context had is free again when it has ended.
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  OK(cuModuleLoadData(&module, small.c_str()));
  OK(cuCtxDestroy(second));
  OK(cuCtxSetCurrent(context));
  fits(1 << 20);
}

}  // namespace smolvm::remoting
