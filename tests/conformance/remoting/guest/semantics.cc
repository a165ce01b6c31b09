// What the driver answers where programs rarely look. Each command runs twice, remoted and on the
// emulation device natively, so that both answer alike.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

constexpr char kEmptyKernel[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n";

CUfunction Function(CUmodule* module) {
  CUfunction function = nullptr;
  OK(cuModuleLoadData(module, kEmptyKernel));
  OK(cuModuleGetFunction(&function, *module, "k"));
  return function;
}

// A fat binary that holds machine code for sm_86 and nothing else.
struct SassOnly {
  // The container's header: magic, version 1, 16 bytes long, and what follows.
  uint32_t magic = 0xba55ed50;
  uint16_t version = 1, header_bytes = 16;
  uint64_t body_bytes = 64 + 64;
  // An entry: ELF, uncompressed.
  uint16_t kind = 2, entry_version = 0x0101;
  uint32_t entry_header_bytes = 64;
  uint64_t payload_bytes = 64;
  uint32_t unused[3] = {};
  uint32_t arch = 86;
  uint64_t unused2 = 0;
  uint64_t flags = 0x11;  // 64-bit, Linux
  uint64_t unused3[2] = {};
  unsigned char payload[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
};
static_assert(sizeof(SassOnly) == 16 + 64 + 64);

constexpr char kWrongPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {\n  bar.sync 16;\n}\n";

constexpr char kCallsNobody[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b32 r) cudaDeviceSynchronize();\n"
    ".visible .entry k() {\n  .param .b32 r;\n  call (r), cudaDeviceSynchronize, ();\n  ret;\n}\n";

}  // namespace

// Both loaders say why, in the buffer that CUDA has for it.
COMMAND(refusal_reasons) {
  Start();
  const SassOnly sass;
  const struct {
    const void* image;
    CUresult result;
    const char* reason;
  } kCases[] = {{&sass, CUDA_ERROR_NO_BINARY_FOR_GPU, "-gencode"},
                {kWrongPtx, CUDA_ERROR_INVALID_PTX, "line 5: 'bar.sync': barrier number '16'"}};
  for (const auto& each : kCases) {
    char text[1024] = {};
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {text, reinterpret_cast<void*>(sizeof text)};
    CUmodule module = nullptr;
    WANT(each.result, cuModuleLoadDataEx(&module, each.image, 2, options, values));
    CHECK(strstr(text, each.reason) != nullptr);
    CHECK(reinterpret_cast<size_t>(values[1]) == strlen(text));
    memset(text, 0, sizeof text);
    values[1] = reinterpret_cast<void*>(sizeof text);
    CUlibrary library = nullptr;
    WANT(each.result,
         cuLibraryLoadData(&library, each.image, options, values, 2, nullptr, nullptr, 0));
    CHECK(strstr(text, each.reason) != nullptr);
  }
}

// Without such a buffer the log says it.
COMMAND(refused_unheard) {
  Start();
  const SassOnly sass;
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  WANT(209, cuModuleLoadData(&module, &sass));
  WANT(218, cuLibraryLoadData(&library, kWrongPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  static const char kNothing[64] = {1};
  WANT(200, cuModuleLoadData(&module, kNothing));
  CUlinkState link = nullptr;
  void* image = nullptr;
  size_t bytes = 0;
  OK(cuLinkCreate(0, nullptr, nullptr, &link));
  CUresult linked = cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(kWrongPtx),
                                  sizeof kWrongPtx, "wrong", 0, nullptr, nullptr);
  if (linked == CUDA_SUCCESS) linked = cuLinkComplete(link, &image, &bytes);
  WANT(218, linked);
}

// The module loads; one kernel of it calls what only a GPU's own runtime has.
COMMAND(kernel_refused) {
  Start();
  CUmodule module = nullptr;
  char text[1024] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {text, reinterpret_cast<void*>(sizeof text)};
  OK(cuModuleLoadDataEx(&module, kCallsNobody, 2, options, values));
  CHECK(strstr(text, "kernel 'k' cannot run") != nullptr);
  CHECK(strstr(text, "cudaDeviceSynchronize") != nullptr);
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, "k"));
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuFuncLoad(function));
  WANT(CUDA_ERROR_NOT_SUPPORTED, cuFuncLoad(function));
}

COMMAND(occupancy) {
  Start();
  CUmodule module = nullptr;
  const CUfunction kernel = Function(&module);
  const auto none = [](int) -> size_t { return 0; };
  const auto too_much = [](int) -> size_t { return size_t{1} << 40; };
  int grid = 0, block = 0;
  WANT(1, cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, nullptr, 0, -1));
  WANT(1, cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, none, 0, -1));
  WANT(1, cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, kernel, none, 0, -5, 0));
  WANT(1, cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, kernel, nullptr, 0, 0, 8));
  WANT(1, cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, kernel, none, 0, 0, 8));
  WANT(1, cuOccupancyMaxPotentialBlockSize(nullptr, &block, kernel, nullptr, 0, 0));
  WANT(1, cuOccupancyMaxPotentialBlockSize(&grid, nullptr, kernel, none, 0, 0));
  WANT(400, cuOccupancyMaxPotentialBlockSize(&grid, &block, nullptr, nullptr, 0, 0));
  WANT(400, cuOccupancyMaxPotentialBlockSize(&grid, &block, nullptr, none, 0, 0));
  // With and without a callback the same sizes are tried, also below a limit of half a warp more.
  for (const int limit : {0, 1024, 1000, 100, 33, 1}) {
    int with_grid = 0, with_block = 0;
    OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, nullptr, 0, limit));
    OK(cuOccupancyMaxPotentialBlockSize(&with_grid, &with_block, kernel, none, 0, limit));
    CHECK(grid == with_grid && block == with_block);
    CHECK(block > 0 && (limit == 0 || block <= limit));
  }
  OK(cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, too_much, 0, 0));
  CHECK(grid == 0 && block == 0);
  int blocks = -1;
  WANT(1, cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, kernel, 32, 0));
  WANT(1, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 0, 0));
  WANT(1, cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, -1, 0));
  OK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 32, SIZE_MAX));
  CHECK(blocks == 0);
  size_t bytes = 0;
  WANT(1, cuOccupancyAvailableDynamicSMemPerBlock(nullptr, kernel, 1, 32));
  WANT(1, cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, -1, 32));
  WANT(1, cuOccupancyAvailableDynamicSMemPerBlock(&bytes, kernel, 1, 0));
}

COMMAND(unmapped_registration) {
  Start();
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* mapped =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  char* const base = static_cast<char*>(mapped);
  munmap(base + page, page);
  WANT(1, cuMemHostRegister(base + page, page, 0));
  WANT(1, cuMemHostRegister(base + 8, page, 0));
  OK(cuMemHostRegister(base + 8, page - 8, 0));
  WANT(712, cuMemHostRegister(base, 9, 0));
  WANT(713, cuMemHostUnregister(base));
  WANT(1, cuMemHostUnregister(nullptr));
  OK(cuMemHostUnregister(base + 8));
  WANT(713, cuMemHostUnregister(base + 8));
}

COMMAND(two_contexts) {
  const CUcontext first = Start();
  CUmodule module = nullptr;
  const CUfunction kernel = Function(&module);
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUcontext second = nullptr;
  OK(cuCtxCreate(&second, nullptr, 0, 0));
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  const auto launch = [&](CUstream on) {
    const CUresult result = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, on, nullptr, nullptr);
    return result ? result : cuCtxSynchronize();
  };
  WANT(400, launch(stream));
  WANT(400, launch(nullptr));
  // Documented: event and stream of one context when it is recorded, of any when it is waited for.
  WANT(400, cuEventRecord(event, stream));
  OK(cuStreamWaitEvent(stream, event, 0));
  OK(cuCtxSynchronize());
  OK(cuCtxSetCurrent(first));
  WANT(400, launch(stream));
  OK(cuEventRecord(event, nullptr));
#ifdef SMOLVM_KERNELS_RUN
  OK(launch(nullptr));
  // A kernel of a library takes the stream's context.
  CUlibrary library = nullptr;
  CUkernel context_less = nullptr;
  OK(cuLibraryLoadData(&library, kEmptyKernel, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&context_less, library, "k"));
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(context_less), 1, 1, 1, 1, 1, 1, 0, stream,
                    nullptr, nullptr));
  OK(cuStreamSynchronize(stream));
#endif
  OK(cuCtxDestroy(second));
}

COMMAND(capture_status) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  WANT(3, cuThreadExchangeStreamCaptureMode(&mode));
  Start();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (const CUstream each : {stream, CUstream{}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    auto status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    OK(cuStreamIsCapturing(each, &status));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
    status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    OK(cuStreamGetCaptureInfo(each, &status, nullptr, nullptr, nullptr, nullptr, nullptr));
    CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  }
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  const CUgraphEdgeData* edges = nullptr;
  WANT(1, cuStreamIsCapturing(stream, nullptr));
  WANT(1, cuStreamGetCaptureInfo(stream, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr));
  WANT(1, cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, nullptr, &edges, nullptr));
  WANT(400, cuStreamIsCapturing(Garbage<CUstream>(), &status));
  WANT(400, cuStreamGetCaptureInfo(Garbage<CUstream>(), &status, nullptr, nullptr, nullptr, nullptr,
                                   nullptr));
  // That nothing is captured is true because nothing can be.
  WANT(801, cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamIsCapturing(stream, &status));
  CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE);
  mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  mode = static_cast<CUstreamCaptureMode>(3);
  WANT(1, cuThreadExchangeStreamCaptureMode(&mode));
  WANT(1, cuThreadExchangeStreamCaptureMode(nullptr));
  OK(cuStreamDestroy(stream));
  WANT(400, cuStreamIsCapturing(stream, &status));
}

COMMAND(unspecified_pitches) {
  Start();
  constexpr size_t kWidth = 8, kRows = 4, kSlices = 2, kBytes = kWidth * kRows * kSlices;
  uint8_t there[kBytes], back[kBytes];
  for (size_t i = 0; i < kBytes; ++i) there[i] = static_cast<uint8_t>(i + 1);
  CUdeviceptr device = 0;
  OK(cuMemAlloc(&device, kBytes));
  CUDA_MEMCPY3D box{};
  box.srcMemoryType = CU_MEMORYTYPE_HOST, box.srcHost = there;
  box.dstMemoryType = CU_MEMORYTYPE_DEVICE, box.dstDevice = device;
  box.WidthInBytes = kWidth, box.Height = kRows, box.Depth = kSlices;
  OK(cuMemcpy3D(&box));  // no pitch, no height: packed
  OK(cuMemcpyDtoH(back, device, kBytes));
  CHECK(memcmp(there, back, kBytes) == 0);
  memset(back, 0, kBytes);
  CUDA_MEMCPY2D flat{};
  flat.srcMemoryType = CU_MEMORYTYPE_DEVICE, flat.srcDevice = device;
  flat.dstMemoryType = CU_MEMORYTYPE_HOST, flat.dstHost = back;
  flat.WidthInBytes = kWidth, flat.Height = kRows;
  OK(cuMemcpy2D(&flat));
  CHECK(memcmp(there, back, kWidth * kRows) == 0);
  flat.srcPitch = kWidth - 1;
  WANT(1, cuMemcpy2D(&flat));
  flat.srcPitch = 0, flat.dstPitch = kWidth - 1;
  WANT(1, cuMemcpy2D(&flat));
  flat.dstPitch = 0, flat.srcXInBytes = 1;  // packed rows have nothing beside them
  WANT(1, cuMemcpy2D(&flat));
  flat.Height = 1;  // one row needs no pitch
  OK(cuMemcpy2D(&flat));
  CHECK(memcmp(there + 1, back, kWidth) == 0);
  flat.srcPitch = kWidth;  // but one that is given holds the row
  WANT(1, cuMemcpy2D(&flat));
  flat.srcPitch = 0, flat.srcXInBytes = 0, flat.dstPitch = kWidth - 1;
  WANT(1, cuMemcpy2D(&flat));
  flat.dstPitch = 0, flat.srcY = 1;  // where the second row begins is not said
  WANT(1, cuMemcpy2D(&flat));
}

COMMAND(dead_pool) {
  Start();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  CUmemoryPool pool = nullptr;
  OK(cuMemPoolCreate(&pool, &properties));
  CUdeviceptr memory = 0;
  OK(cuMemAllocFromPoolAsync(&memory, 4096, pool, nullptr));
  OK(cuMemFreeAsync(memory, nullptr));
  OK(cuMemPoolDestroy(pool));
  uint64_t value = 0;
  WANT(1, cuMemAllocFromPoolAsync(&memory, 4096, pool, nullptr));
  WANT(1, cuMemPoolDestroy(pool));
  WANT(1, cuMemPoolTrimTo(pool, 0));
  WANT(1, cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
  WANT(1, cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
  WANT(1, cuDeviceSetMemPool(0, pool));
  WANT(1, cuMemPoolDestroy(nullptr));
}

COMMAND(module_files) {
  Start();
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  WANT(301, cuModuleLoad(&module, "/"));
  WANT(301, cuModuleLoad(&module, "/nonexistent/module.ptx"));
  WANT(301, cuLibraryLoadFromFile(&library, "/", nullptr, nullptr, 0, nullptr, nullptr, 0));
  WANT(1, cuModuleLoad(&module, nullptr));
  char path[] = "/tmp/smolvm-empty-XXXXXX";
  const int file = mkstemp(path);
  CHECK(file >= 0);
  close(file);
  const CUresult empty = cuModuleLoad(&module, path);
  unlink(path);
  WANT(200, empty);
}

// What is documented for NULL handles.
COMMAND(null_functions) {
  Start();
  const char* name = nullptr;
  size_t offset = 0, size = 0;
  WANT(1, cuFuncGetName(&name, nullptr));
  WANT(1, cuKernelGetName(&name, nullptr));
  WANT(1, cuFuncGetParamInfo(nullptr, 0, &offset, &size));
  WANT(1, cuKernelGetParamInfo(nullptr, 0, &offset, &size));
  WANT(400, cuFuncGetName(&name, Garbage<CUfunction>()));
  WANT(400, cuKernelGetName(&name, Garbage<CUkernel>()));
  CUmodule module = nullptr;
  const CUfunction function = Function(&module);
  WANT(1, cuFuncGetName(nullptr, function));
  OK(cuFuncGetName(&name, function));
  CHECK(strcmp(name, "k") == 0);
  WANT(1, cuFuncGetParamInfo(function, 0, &offset, &size));
}

// Memory of one allocator may be freed by the other's call (CUDA programming guide, stream-ordered
// memory allocation); a second free is refused whichever call it is.
COMMAND(frees_across_allocators) {
  Start();
  CUstream stream = nullptr;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  for (const CUstream on : {CUstream{}, stream}) {
    CUdeviceptr memory = 0;
    OK(cuMemAlloc(&memory, 4096));
    OK(cuMemsetD8Async(memory, 7, 4096, on));
    OK(cuMemFreeAsync(memory, on));
    OK(cuStreamSynchronize(on));
    WANT(1, cuMemFree(memory));
    OK(cuMemAllocAsync(&memory, 4096, on));
    OK(cuMemsetD8Async(memory, 7, 4096, on));
    OK(cuMemFree(memory));
    WANT(1, cuMemFreeAsync(memory, on));
    WANT(1, cuMemFreeAsync(memory + 8, on));
    size_t pitch = 0;
    OK(cuMemAllocPitch(&memory, &pitch, 100, 3, 4));
    OK(cuMemFreeAsync(memory, on));
  }
  OK(cuCtxSynchronize());
}

// DEVICEMAP is for any device: documented, what cannot be mapped is told by
// cuMemHostGetDevicePointer.
COMMAND(mapped_host_memory) {
  Start();
  int can = -1, read_only = -1;
  OK(cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
  OK(cuDeviceGetAttribute(&read_only, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 0));
  CUdeviceptr device = 0;
  unsigned read = 0;
  for (unsigned flags = 0; flags < 8; ++flags) {
    void* host = nullptr;
    OK(cuMemHostAlloc(&host, 4096, flags));
    OK(cuMemHostGetFlags(&read, host));
    CHECK(read == flags);
    CHECK((cuMemHostGetDevicePointer(&device, host, 0) == CUDA_SUCCESS) == (can != 0));
    OK(cuMemFreeHost(host));
  }
  void* host = nullptr;
  WANT(1, cuMemHostAlloc(&host, 4096, 8));
  WANT(1, cuMemHostAlloc(&host, 0, 0));
  std::vector<char> bytes(8192);
  for (unsigned flags = 0; flags < 4; ++flags) {
    OK(cuMemHostRegister(bytes.data(), bytes.size(), flags));
    CHECK((cuMemHostGetDevicePointer(&device, bytes.data(), 0) == CUDA_SUCCESS) == (can != 0));
    OK(cuMemHostUnregister(bytes.data()));
  }
  WANT(801, cuMemHostRegister(bytes.data(), bytes.size(), CU_MEMHOSTREGISTER_IOMEMORY));
  if (!read_only)
    WANT(801, cuMemHostRegister(bytes.data(), bytes.size(), CU_MEMHOSTREGISTER_READ_ONLY));
  WANT(1, cuMemHostRegister(bytes.data(), bytes.size(), 16));
}

COMMAND(later_versions) {
  void* found = &found;
  CUdriverProcAddressQueryResult status{};
  OK(cuInit(0));
  int version = 0;
  OK(cuDriverGetVersion(&version));
  WANT(1, cuGetProcAddress("cuInit", &found, 99000, 0, &status));
  WANT(1, cuGetProcAddress("cuInit", &found, version + 10, 0, &status));
  CHECK(found == &found);
  OK(cuGetProcAddress("cuInit", &found, version, 0, &status));
  CHECK(found != &found && status == CU_GET_PROC_ADDRESS_SUCCESS);
}

// Each name, served or not, has one address.
COMMAND(one_address_each) {
  OK(cuInit(0));
  for (const char* name : {"cuMemAlloc", "cuGraphCreate", "cuArrayCreate", "cuMemCreate",
                           "cuStreamBeginCapture", "cuTexObjectCreate", "cuMemGetInfo"}) {
    void* found = nullptr;
    CUdriverProcAddressQueryResult status{};
    OK(cuGetProcAddress(name, &found, 12080, 0, &status));
    CHECK(found != nullptr && status == CU_GET_PROC_ADDRESS_SUCCESS);
    bool same = false;
    for (const char* suffix : {"", "_v2", "_v3"})
      same |= dlsym(RTLD_DEFAULT, (std::string(name) + suffix).c_str()) == found;
    CHECK(same);
  }
  void* create = nullptr;
  CUdriverProcAddressQueryResult status{};
  OK(cuGetProcAddress("cuGraphCreate", &create, 12080, 0, &status));
  CUgraph graph = nullptr;
  WANT(801, reinterpret_cast<decltype(&cuGraphCreate)>(create)(&graph, 0));
}

}  // namespace smolvm::remoting
