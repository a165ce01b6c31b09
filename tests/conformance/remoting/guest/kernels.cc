// Kernels, where the daemon's device runs them.
#include <unistd.h>

#include <cstring>

#include "tests/conformance/remoting/guest/command.h"

namespace smolvm::remoting {
namespace {

constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";

constexpr char kAdd[] = R"(
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<4>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd4, %r5, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  ld.global.f32 %f1, [%rd5];
  ld.global.f32 %f2, [%rd6];
  add.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
done:
  ret;
}
)";

// printf("line %d\n", n)
constexpr char kSay[] = R"(
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .align 1 .b8 fmt[9] = {108, 105, 110, 101, 32, 37, 100, 10, 0};
.visible .entry say(.param .u32 n)
{
  .local .align 8 .b8 buffer[8];
  .reg .b32 %r<3>;
  .reg .b64 %rd<5>;
  ld.param.u32 %r1, [n];
  mov.u64 %rd1, buffer;
  cvta.local.u64 %rd2, %rd1;
  st.local.u32 [%rd1], %r1;
  mov.u64 %rd3, fmt;
  cvta.global.u64 %rd4, %rd3;
  {
    .param .b64 param0;
    st.param.b64 [param0], %rd4;
    .param .b64 param1;
    st.param.b64 [param1], %rd2;
    .param .b32 retval0;
    call.uni (retval0), vprintf, (param0, param1);
    ld.param.b32 %r2, [retval0];
  }
  ret;
}
)";

// __assertfail("x\nforged=1", the same, 7, the same, 1): a text that would be a line of its own.
constexpr char kAssert[] = R"(
.extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.global .align 1 .b8 text[11] = {120, 10, 102, 111, 114, 103, 101, 100, 61, 49, 0};
.visible .entry fails()
{
  .reg .b64 %rd<3>;
  mov.u64 %rd1, text;
  cvta.global.u64 %rd2, %rd1;
  {
    .param .b64 param0;
    st.param.b64 [param0], %rd2;
    .param .b64 param1;
    st.param.b64 [param1], %rd2;
    .param .b32 param2;
    st.param.b32 [param2], 7;
    .param .b64 param3;
    st.param.b64 [param3], %rd2;
    .param .b64 param4;
    st.param.b64 [param4], 1;
    call.uni __assertfail, (param0, param1, param2, param3, param4);
  }
  ret;
}
)";

// Stores to an address that is nobody's.
constexpr char kFault[] = R"(
.visible .entry fault()
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  mov.u64 %rd1, 64;
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
)";

constexpr int kManyParameters = 70;

// out[0] = the sum of 69 numbers of 8 bytes.
std::string ManyParameters() {
  std::string text = ".visible .entry many(.param .u64 out";
  for (int i = 1; i < kManyParameters; ++i) text += ", .param .u64 p" + std::to_string(i);
  text += ")\n{\n  .reg .b64 %rd<4>;\n  mov.u64 %rd1, 0;\n";
  for (int i = 1; i < kManyParameters; ++i) {
    text += "  ld.param.u64 %rd2, [p" + std::to_string(i) + "];\n  add.s64 %rd1, %rd1, %rd2;\n";
  }
  return text + "  ld.param.u64 %rd3, [out];\n  st.global.u64 [%rd3], %rd1;\n  ret;\n}\n";
}

CUfunction Load(const std::string& kernel, const char* name) {
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, (kHeader + kernel).c_str()));
  CUfunction function = nullptr;
  OK(cuModuleGetFunction(&function, module, name));
  return function;
}

}  // namespace

COMMAND(refused_launch) {
  Start();
  WANT(801, cuLaunchKernel(Load(kFault, "fault"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  RoundTrip(4096, 1);
}

COMMAND(vector_add) {
  Start();
  const CUfunction add = Load(kAdd, "add");
  uint32_t n = 10'000;
  std::vector<float> a(n), b(n), c(n);
  for (uint32_t i = 0; i < n; ++i) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i);
  }
  CUdeviceptr device_a = 0, device_b = 0, device_c = 0;
  OK(cuMemAlloc(&device_a, n * 4));
  OK(cuMemAlloc(&device_b, n * 4));
  OK(cuMemAlloc(&device_c, n * 4));
  OK(cuMemcpyHtoD(device_a, a.data(), n * 4));
  OK(cuMemcpyHtoD(device_b, b.data(), n * 4));
  void* parameters[] = {&device_a, &device_b, &device_c, &n};
  OK(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, parameters, nullptr));
  OK(cuMemcpyDtoH(c.data(), device_c, n * 4));
  for (uint32_t i = 0; i < n; ++i) CHECK(c[i] == static_cast<float>(3 * i));
  // The same by `extra`.
  struct {
    CUdeviceptr a, b, c;
    uint32_t n;
  } packed = {device_c, device_b, device_a, n};
  size_t size = 28;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(add, (n + 255) / 256, 1, 1, 256, 1, 1, 0, nullptr, nullptr, extra));
  OK(cuMemcpyDtoH(c.data(), device_a, n * 4));
  for (uint32_t i = 0; i < n; ++i) CHECK(c[i] == static_cast<float>(5 * i));
  WANT(1, cuLaunchKernel(add, 1, 1, 1, 256, 1, 1, 0, nullptr, parameters, extra));
  WANT(1, cuLaunchKernel(add, 1, 1, 1, 4096, 1, 1, 0, nullptr, parameters, nullptr));
  OK(cuCtxSynchronize());
}

// Two inputs, one of them a file; the image is used after more of the link's calls, and not after
// its end.
COMMAND(links) {
  Start();
  const std::string caller = std::string(kHeader) + R"(
.extern .func (.param .b32 r) seven();
.visible .entry run(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  { .param .b32 r; call.uni (r), seven; ld.param.b32 %r1, [r]; }
  st.global.u32 [%rd1], %r1;
  ret;
}
)";
  const std::string callee =
      std::string(kHeader) +
      ".visible .func (.param .b32 r) seven() { st.param.b32 [r], 7; ret; }\n";
  char error[200] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {error, reinterpret_cast<void*>(sizeof error)};
  CUlinkState state = nullptr;
  OK(cuLinkCreate(2, options, values, &state));
  OK(cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(caller.c_str()), caller.size() + 1,
                   "caller", 0, nullptr, nullptr));
  void *image = nullptr, *again = nullptr;
  size_t bytes = 0;
  WANT(218, cuLinkComplete(state, &image, &bytes));
  CHECK(strstr(error, "undefined reference to 'seven'"));
  char path[] = "/tmp/smolvm-link-XXXXXX";
  const int fd = mkstemp(path);
  CHECK(fd >= 0);
  CHECK(write(fd, callee.data(), callee.size()) == static_cast<ssize_t>(callee.size()));
  close(fd);
  const CUresult added = cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr);
  unlink(path);
  OK(added);
  OK(cuLinkComplete(state, &image, &bytes));
  OK(cuLinkComplete(state, &again, nullptr));
  CHECK(again == image);
  CUmodule module = nullptr;
  OK(cuModuleLoadData(&module, image));
  std::vector<char> copy(static_cast<char*>(image), static_cast<char*>(image) + bytes);
  OK(cuLinkDestroy(state));
  CUmodule second = nullptr;
  OK(cuModuleLoadData(&second, copy.data()));
  CUfunction run = nullptr;
  OK(cuModuleGetFunction(&run, module, "run"));
#ifdef SMOLVM_KERNELS_RUN
  CUdeviceptr out = 0;
  OK(cuMemAlloc(&out, 4));
  void* parameters[] = {&out};
  OK(cuLaunchKernel(run, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  uint32_t got = 0;
  OK(cuMemcpyDtoH(&got, out, 4));
  CHECK(got == 7);
#endif
}

// Managed memory waits for memory that guest and host both map: the device says that it has none,
// and what needs the host's address is refused. The device's side of a __managed__ variable works.
COMMAND(managed) {
  Start();
  CUdevice device = 0;
  OK(cuDeviceGet(&device, 0));
  int managed = -1;
  OK(cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device));
  CHECK(managed == 0);
  CUdeviceptr address = 0;
  WANT(801, cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
  const std::string text =
      std::string(kHeader) + ".visible .global .attribute(.managed) .align 4 .u32 shared = 5;\n";
  CUlibrary library = nullptr;
  OK(cuLibraryLoadData(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  size_t bytes = 0;
  WANT(801, cuLibraryGetManaged(&address, &bytes, library, "shared"));
  CUmodule module = nullptr;
  OK(cuLibraryGetModule(&module, library));
  OK(cuModuleGetGlobal(&address, &bytes, module, "shared"));
  uint32_t value = 0;
  OK(cuMemcpyDtoH(&value, address, 4));
  CHECK(value == 5);
}

COMMAND(many_parameters) {
  Start();
  const CUfunction many = Load(ManyParameters(), "many");
  CUdeviceptr out = 0;
  OK(cuMemAlloc(&out, 8));
  uint64_t numbers[kManyParameters], sum = 0;
  void* parameters[kManyParameters] = {&out};
  for (int i = 1; i < kManyParameters; ++i) {
    numbers[i] = uint64_t{0x100000001} * i * i;
    sum += numbers[i];
    parameters[i] = &numbers[i];
  }
  OK(cuLaunchKernel(many, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  uint64_t got = 0;
  OK(cuMemcpyDtoH(&got, out, 8));
  CHECK(got == sum);
}

COMMAND(kernel_prints) {
  Start();
  const CUfunction say = Load(kSay, "say");
  printf("before\n");
  for (uint32_t i = 0; i < 3; ++i) {
    void* parameters[] = {&i};
    OK(cuLaunchKernel(say, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
  }
  OK(cuCtxSynchronize());
  printf("after\n");
}

COMMAND(kernel_asserts) {
  Start();
  OK(cuLaunchKernel(Load(kAssert, "fails"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  WANT(710, cuCtxSynchronize());
}

// A fault is told by whatever can tell it next, and no copy returns stale data with success.
COMMAND(kernel_faults) {
  const CUcontext context = Start();
  CUdeviceptr memory = 0;
  OK(cuMemAlloc(&memory, 4096));
  OK(cuLaunchKernel(Load(kFault, "fault"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
  char byte = 0;
  WANT(700, cuMemcpyDtoH(&byte, memory, 1));
  WANT(700, cuCtxSynchronize());
  WANT(700, cuMemcpyDtoH(&byte, memory, 1));
  CUdeviceptr more = 0;
  WANT(700, cuMemAlloc(&more, 4096));
  (void)cuCtxDestroy(context);
}

}  // namespace smolvm::remoting
