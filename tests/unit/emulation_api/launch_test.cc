#include <thread>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

class LaunchTest : public EmulationTest {
 protected:
  CUresult Shape(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                 unsigned bz, unsigned shared = 0) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr);
  }
};

TEST_F(LaunchTest, PassesParametersAndShape) {
  CUdeviceptr to = Alloc(4096);
  void* params[] = {&to};
  EXPECT_CUDA(cuLaunchKernel(Function("shape"), 2, 3, 4, 32, 2, 1, 128, nullptr, params, nullptr));
  uint32_t shape[8];
  EXPECT_CUDA(cuMemcpyDtoH(shape, to, sizeof(shape)));
  EXPECT_EQ(std::vector<uint32_t>(shape, shape + 8),
            (std::vector<uint32_t>{2, 3, 4, 32, 2, 1, 128, 0}));
  uint8_t a = 1;
  uint16_t b = 2;
  uint32_t c = 3;
  uint64_t d = 4;
  EXPECT_CUDA(Launch("echo", {&to, &a, &b, &c, &d}));
  uint8_t echo[24];
  EXPECT_CUDA(cuMemcpyDtoH(echo, to, sizeof(echo)));
  EXPECT_EQ(echo[8], 1);
  EXPECT_EQ(echo[10], 2);
  EXPECT_EQ(echo[12], 3);
  EXPECT_EQ(echo[16], 4);
}

TEST_F(LaunchTest, TakesExtraInstead) {
  CUdeviceptr to = Alloc(4096);
  struct {
    CUdeviceptr to;
    uint32_t value;
  } buffer = {to, 99};
  size_t bytes = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                   CU_LAUNCH_PARAM_END};
  const CUfunction store = Function("store");
  EXPECT_CUDA(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  EXPECT_EQ(Word(to), 99u);
  bytes = 11;
  EXPECT_EQ(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  bytes = 12;
  void* params[] = {&to, &bytes};
  EXPECT_EQ(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, TakesManyAndLargeParameters) {
  std::string image = "//fake\nkernel echo 8";
  for (int i = 0; i < 69; ++i) image += " 4";
  image += "\n";
  CUmodule module = nullptr;
  ASSERT_CUDA(cuModuleLoadData(&module, image.c_str()));
  CUfunction many = nullptr;
  ASSERT_CUDA(cuModuleGetFunction(&many, module, "echo"));
  CUdeviceptr to = Alloc(65536);
  std::vector<uint32_t> values(69);
  std::vector<void*> params = {&to};
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<uint32_t>(i + 1), params.push_back(&values[i]);
  EXPECT_CUDA(cuLaunchKernel(many, 1, 1, 1, 1, 1, 1, 0, nullptr, params.data(), nullptr));
  EXPECT_EQ(Word(to + 8 + 4 * 68), 69u);

  const std::string large = "//fake\nkernel echo 8 32756\n";
  ASSERT_CUDA(cuModuleLoadData(&module, large.c_str()));
  ASSERT_CUDA(cuModuleGetFunction(&many, module, "echo"));
  std::vector<char> block(32756, 'x');
  void* two[] = {&to, block.data()};
  EXPECT_CUDA(cuLaunchKernel(many, 1, 1, 1, 1, 1, 1, 0, nullptr, two, nullptr));
  EXPECT_EQ(Word(to + 32760), 0x78787878u);
}

TEST_F(LaunchTest, ChecksDimensions) {
  const CUfunction empty = Function("empty");
  EXPECT_CUDA(Shape(empty, 1, 1, 1, 1024, 1, 1));
  EXPECT_EQ(Shape(empty, 0, 1, 1, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(empty, 1, 1, 1, 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(empty, 1, 65536, 1, 1, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(empty, 1, 1, 1, 1025, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(empty, 1, 1, 1, 32, 33, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(empty, 1, 1, 1, 1, 1, 65), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(Function("bounded"), 1, 1, 1, 129, 1, 1), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_CUDA(Shape(Function("required"), 1, 1, 1, 64, 1, 1));
  EXPECT_EQ(Shape(Function("required"), 1, 1, 1, 32, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Shape(nullptr, 1, 1, 1, 1, 1, 1), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LaunchTest, SharedMemoryMustBeAskedFor) {
  const CUfunction shared = Function("shared");  // 16 KiB static
  EXPECT_CUDA(Shape(shared, 1, 1, 1, 1, 1, 1, 32 << 10));
  EXPECT_EQ(Shape(shared, 1, 1, 1, 1, 1, 1, (32 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(
      cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 100 << 10));
  EXPECT_CUDA(Shape(shared, 1, 1, 1, 1, 1, 1, 100 << 10));
  EXPECT_EQ(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_NUM_REGS, 3), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, HonoursOrRefusesAttributes) {
  CUdeviceptr to = Alloc(4096);
  void* params[] = {&to};
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUlaunchAttribute attributes[2] = {};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attributes[0].value.cooperative = 1;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attributes[1].value.launchCompletionEvent = {event, 0};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  config.attrs = attributes;
  config.numAttrs = 2;
  EXPECT_CUDA(cuLaunchKernelEx(&config, Function("shape"), params, nullptr));
  EXPECT_CUDA(cuEventSynchronize(event));
  EXPECT_EQ(Word(to + 28), 1u);  // it was cooperative
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {2, 1, 1};
  EXPECT_EQ(cuLaunchKernelEx(&config, Function("shape"), params, nullptr),
            CUDA_ERROR_NOT_SUPPORTED);
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  EXPECT_EQ(cuLaunchKernelEx(&config, Function("shape"), params, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  config.numAttrs = 1;
  config.gridDimX = 1 << 20;
  EXPECT_EQ(cuLaunchKernelEx(&config, Function("shape"), params, nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_EQ(cuLaunchKernelEx(nullptr, Function("shape"), params, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      cuLaunchCooperativeKernel(Function("empty"), 1 << 20, 1, 1, 32, 1, 1, 0, nullptr, nullptr),
      CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

TEST_F(LaunchTest, KernelsHaveTheirStreamsPriorityOrTheirOwn) {
  int least = 0, greatest = 0;
  ASSERT_CUDA(cuCtxGetStreamPriorityRange(&least, &greatest));
  ASSERT_LT(greatest, least);
  CUstream stream = nullptr;
  ASSERT_CUDA(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest));
  CUdeviceptr to = Alloc(64);
  const auto seen = [&] { return static_cast<int>(Word(to + 32)); };
  ASSERT_CUDA(Launch("shape", {&to}, stream));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(seen(), greatest);
  ASSERT_CUDA(Launch("shape", {&to}));
  ASSERT_CUDA(cuCtxSynchronize());
  EXPECT_EQ(seen(), 0);
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  attribute.value.priority = greatest + 1;
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* params[] = {&to};
  ASSERT_CUDA(cuLaunchKernelEx(&config, Function("shape"), params, nullptr));
  ASSERT_CUDA(cuStreamSynchronize(stream));
  EXPECT_EQ(seen(), greatest + 1);
  attribute.value.priority = greatest - 1;
  EXPECT_EQ(cuLaunchKernelEx(&config, Function("shape"), params, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, RunsInStreamOrder) {
  CUdeviceptr counter = Alloc(4);
  const CUstream stream = NewStream();
  for (int i = 0; i < 1000; ++i) EXPECT_CUDA(Launch("increment", {&counter}, stream));
  uint32_t value = 0;
  EXPECT_CUDA(cuMemcpyDtoHAsync(&value, counter, 4, stream));
  EXPECT_EQ(value, 1000u);  // to pageable memory: there on return
}

TEST_F(LaunchTest, StreamsOfOtherContextsAreRefused) {
  const CUfunction empty = Function("empty");
  const CUstream stream = NewStream();
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  EXPECT_EQ(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA(cuCtxDestroy(other));
}

TEST_F(LaunchTest, FunctionsAndEventsOfOtherContextsAreRefused) {
  const CUfunction empty = Function("empty");
  CUevent event = nullptr;
  ASSERT_CUDA(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  const CUstream stream = NewStream();
  EXPECT_EQ(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuEventRecord(event, stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA(cuStreamWaitEvent(stream, event, 0));  // documented: it may be another context's

  module_ = Load();  // in this context
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
  attribute.value.launchCompletionEvent = {event, 0};
  CUlaunchConfig config = {};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_EQ(cuLaunchKernelEx(&config, Function("empty"), nullptr, nullptr),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_CUDA(cuCtxDestroy(other));
  module_ = nullptr;
}

// Documented at cuLaunchKernel: a CUkernel takes the context of the stream.
TEST_F(LaunchTest, KernelsOfLibrariesRunInTheStreamsContext) {
  CUlibrary library = nullptr;
  ASSERT_CUDA(cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0));
  CUkernel kernel = nullptr;
  ASSERT_CUDA(cuLibraryGetKernel(&kernel, library, "increment"));
  CUdeviceptr counter = Alloc(4);
  void* params[] = {&counter};
  const CUstream stream = NewStream();
  const auto launch = [&] {
    return cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream, params,
                          nullptr);
  };
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  EXPECT_CUDA(launch());
  EXPECT_CUDA(cuCtxDestroy(other));
  CUcontext popped = nullptr;
  ASSERT_CUDA(cuCtxPopCurrent(&popped));
  EXPECT_CUDA(launch());
  EXPECT_CUDA(cuStreamSynchronize(stream));
  ASSERT_CUDA(cuCtxPushCurrent(popped));
  EXPECT_EQ(Word(counter), 2u);
  EXPECT_CUDA(cuLibraryUnload(library));
}

TEST_F(LaunchTest, UntranslatableIsRefusedAtTheLaunch) {
  EXPECT_EQ(Launch("untranslatable", {}), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuFuncLoad(Function("untranslatable")), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CUDA(cuCtxSynchronize());  // and harms nothing
  EXPECT_CUDA(Launch("empty", {}));
}

TEST_F(LaunchTest, FaultsAreStickyInTheirContext) {
  const CUdeviceptr address = Alloc(4096);
  bool called = false;
  EXPECT_CUDA(Launch("fault700", {}));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  CUdeviceptr more = 0;
  uint32_t word = 7;
  EXPECT_EQ(cuMemAlloc(&more, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuMemcpyDtoH(&word, address, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuStreamSynchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuStreamQuery(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuLaunchHostFunc(
                nullptr, [](void* flag) { *static_cast<bool*>(flag) = true; }, &called),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_FALSE(called);
  EXPECT_EQ(word, 7u);
  CUcontext other = nullptr;
  ASSERT_CUDA(cuCtxCreate(&other, nullptr, 0, device_));
  EXPECT_CUDA(cuMemAlloc(&more, 64));
  EXPECT_CUDA(cuCtxDestroy(other));
}

TEST_F(LaunchTest, CallbacksLearnOfFaults) {
  CUresult status = CUDA_SUCCESS;
  const CUstream stream = NewStream();
  Gate gate(stream);
  EXPECT_CUDA(cuLaunchKernel(Function("fault719"), 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  EXPECT_CUDA(cuStreamAddCallback(
      stream, [](CUstream, CUresult result, void* out) { *static_cast<CUresult*>(out) = result; },
      &status, 0));
  gate.Open();
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(status, CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(LaunchTest, Occupancy) {
  int blocks = 0, grid = 0, block = 0;
  EXPECT_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("empty"), 256, 0));
  EXPECT_EQ(blocks, 8);  // 2048 threads; 32 registers each
  EXPECT_CUDA(
      cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("empty"), 32, 100 << 10));
  EXPECT_EQ(blocks, 2);
  EXPECT_CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("bounded"), 256, 0));
  EXPECT_EQ(blocks, 0);
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("empty"), 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA(cuOccupancyMaxPotentialBlockSize(&grid, &block, Function("empty"), nullptr, 0, 0));
  EXPECT_EQ(block, 1024);
  EXPECT_GE(grid, 2);
  EXPECT_CUDA(cuOccupancyMaxPotentialBlockSize(&grid, &block, Function("empty"), nullptr, 0, 100));
  EXPECT_LE(block, 100);
  size_t bytes = 0;
  EXPECT_CUDA(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, Function("empty"), 2, 128));
  EXPECT_EQ(bytes, size_t{113} << 10);
}

TEST_F(LaunchTest, OccupancyChecksItsArguments) {
  const CUfunction empty = Function("empty");
  int blocks = 0, grid = 0, block = 0;
  size_t bytes = 0;
  const auto size_of = [](int) -> size_t { return 0; };
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSize(&grid, &block, empty, nullptr, 0, -1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, empty, size_of, 0, -1, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSizeWithFlags(&grid, &block, empty, nullptr, 0, 0, 8),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSize(nullptr, &block, empty, nullptr, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSize(&grid, nullptr, empty, nullptr, 0, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyMaxPotentialBlockSize(&grid, &block, nullptr, nullptr, 0, 0),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, empty, 32, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, empty, -32, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyAvailableDynamicSMemPerBlock(nullptr, empty, 1, 32),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, empty, 0, 32),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuOccupancyAvailableDynamicSMemPerBlock(&bytes, empty, 1, -1),
            CUDA_ERROR_INVALID_VALUE);
  // More shared memory than there is: no block fits, whatever the sum overflows to.
  EXPECT_CUDA(
      cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("shared"), 32, SIZE_MAX));
  EXPECT_EQ(blocks, 0);
}

}  // namespace
}  // namespace smolvm::emulation
