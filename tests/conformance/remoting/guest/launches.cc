// How launches hand over parameters and attributes.
#include <cstring>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

// The limit since CUDA 12.1 on devices of 7.0 and newer (CUDA programming guide).
constexpr size_t kMostParameterBytes = 32764;

// out[0] = first word of `block` + its last. All parameters together take `bytes`.
std::string BlockKernel(size_t bytes) {
  const std::string block = std::to_string(bytes - 8), last = std::to_string(bytes - 12);
  return ".version 8.1\n.target sm_70\n.address_size 64\n"
         ".visible .entry block(.param .u64 out, .param .align 4 .b8 block[" +
         block +
         "])\n{\n"
         "  .reg .b32 %r<4>;\n  .reg .b64 %rd<2>;\n"
         "  ld.param.u64 %rd1, [out];\n"
         "  ld.param.u32 %r1, [block];\n"
         "  ld.param.u32 %r2, [block+" +
         last +
         "];\n"
         "  add.u32 %r3, %r1, %r2;\n"
         "  st.global.u32 [%rd1], %r3;\n  ret;\n}\n";
}

constexpr char kIncrement[] =
    ".version 8.1\n.target sm_70\n.address_size 64\n"
    ".visible .entry increment(.param .u64 out)\n{\n"
    "  .reg .b32 %r<3>;\n  .reg .b64 %rd<2>;\n"
    "  ld.param.u64 %rd1, [out];\n  ld.global.u32 %r1, [%rd1];\n  add.u32 %r2, %r1, 1;\n"
    "  st.global.u32 [%rd1], %r2;\n  ret;\n}\n";

CUfunction Load(const std::string& ptx, const char* name) {
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, ptx.c_str()));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

uint32_t Word(CUdeviceptr memory) {
  uint32_t word = 0;
  OK(cuMemcpyDtoH(&word, memory, sizeof word));
  return word;
}

void TryParameters(size_t bytes, CUdeviceptr out) {
  const CUfunction function = Load(BlockKernel(bytes), "block");
  std::vector<uint32_t> block((bytes - 8) / 4, 0x55);
  block.front() = 1000;
  block.back() = 7;
  void* parameters[] = {&out, block.data()};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  CHECK(Word(out) == 1007);
  std::vector<char> packed(bytes);
  block.back() = 8;
  memcpy(packed.data(), &out, 8);
  memcpy(packed.data() + 8, block.data(), bytes - 8);
  size_t size = bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
  CHECK(Word(out) == 1008);
}

CUresult LaunchWith(CUfunction function, CUlaunchAttribute attribute, CUdeviceptr out) {
  CUlaunchConfig config{};
  config.gridDimX = 2, config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.attrs = &attribute;
  config.numAttrs = 1;
  void* parameters[] = {&out};
  return cuLaunchKernelEx(&config, function, parameters, nullptr);
}

int DeviceSays(CUdevice_attribute attribute) {
  int value = 0;
  OK(cuDeviceGetAttribute(&value, attribute, 0));
  return value;
}

}  // namespace

COMMAND(large_parameters) {
  Start();
  CUdeviceptr out = 0;
  OK(cuMemAlloc(&out, 4));
  for (const size_t bytes : {size_t{16}, size_t{4096}, size_t{4100}, kMostParameterBytes}) {
    TryParameters(bytes, out);
  }
  // A byte more than can be is refused where it is known, and reaches no kernel.
  std::vector<char> packed(kMostParameterBytes + 4);
  size_t size = packed.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  WANT(1,
       cuLaunchKernel(Load(kIncrement, "increment"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
}

// An attribute takes effect, or the launch fails and does nothing.
COMMAND(launch_attributes) {
  Start();
  CUdeviceptr out = 0;
  OK(cuMemAlloc(&out, 4));
  OK(cuMemsetD32(out, 0, 1));
  const CUfunction increment = Load(kIncrement, "increment");
  CUlaunchAttribute attribute{};
  uint32_t launched = 0;
  attribute.id = CU_LAUNCH_ATTRIBUTE_IGNORE;
  OK(LaunchWith(increment, attribute, out));
  CHECK((launched = Word(out)) > 0);

  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = 2;
  attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
  if (!DeviceSays(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH)) {
    CHECK(LaunchWith(increment, attribute, out) != CUDA_SUCCESS);
    CHECK(Word(out) == launched);
  }
  // One that names an event by an address of this process, and one that does not exist.
  attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
  attribute.value.programmaticEvent.event = Garbage<CUevent>();
  CHECK(LaunchWith(increment, attribute, out) != CUDA_SUCCESS);
  attribute = {};
  attribute.id = static_cast<CUlaunchAttributeID>(9999);
  CHECK(LaunchWith(increment, attribute, out) != CUDA_SUCCESS);
  OK(cuCtxSynchronize());
  CHECK(Word(out) == launched);

  attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  attribute.value.cooperative = 1;
  if (DeviceSays(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)) {
    OK(LaunchWith(increment, attribute, out));
    CHECK(Word(out) > launched);
  } else {
    CHECK(LaunchWith(increment, attribute, out) != CUDA_SUCCESS);
  }
}

}  // namespace smolvm::remoting
