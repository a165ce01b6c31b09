// The library as it is shipped, with hand-written PTX: the front end behind it, and where kernels
// run, those too.
#include <cstring>

#include "tests/unit/emulation_api/support.h"

namespace smolvm::emulation {
namespace {

constexpr char kPtx[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 counter = 41;
.visible .const .align 4 .u32 step[2] = {1, 2};
.visible .entry add(.param .u64 out, .param .u64 in, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.u32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.u32 %r6, [%rd5];
  ld.global.u32 %r7, [counter];
  add.u32 %r6, %r6, %r7;
  st.global.u32 [%rd4], %r6;
done:
  ret;
}
.visible .entry bounded(.param .u32 a) .maxntid 64, 2, 1
{
  ret;
}
)";

class LibraryTest : public EmulationTest {
 protected:
  CUmodule LoadPtx() {
    CUmodule module = nullptr;
    EXPECT_CUDA(cuModuleLoadData(&module, kPtx));
    return module;
  }
};

TEST_F(LibraryTest, ListsWhatPtxDeclares) {
  const CUmodule module = LoadPtx();
  unsigned count = 0;
  EXPECT_CUDA(cuModuleGetFunctionCount(&count, module));
  EXPECT_EQ(count, 2u);
  CUfunction add = nullptr, bounded = nullptr;
  ASSERT_CUDA(cuModuleGetFunction(&add, module, "add"));
  ASSERT_CUDA(cuModuleGetFunction(&bounded, module, "bounded"));
  size_t offset = 0, size = 0;
  EXPECT_CUDA(cuFuncGetParamInfo(add, 2, &offset, &size));
  EXPECT_EQ(offset, 16u);
  EXPECT_EQ(size, 4u);
  int threads = 0;
  EXPECT_CUDA(cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, bounded));
  EXPECT_EQ(threads, 128);
}

TEST_F(LibraryTest, VariablesAreInitialised) {
  const CUmodule module = LoadPtx();
  CUdeviceptr counter = 0, step = 0;
  size_t bytes = 0;
  ASSERT_CUDA(cuModuleGetGlobal(&counter, &bytes, module, "counter"));
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(Word(counter), 41u);
  ASSERT_CUDA(cuModuleGetGlobal(&step, &bytes, module, "step"));
  EXPECT_EQ(bytes, 8u);
  EXPECT_EQ(Word(step + 4), 2u);
}

TEST_F(LibraryTest, RunsOrSaysThatItCannot) {
  const CUmodule module = LoadPtx();
  CUfunction add = nullptr;
  ASSERT_CUDA(cuModuleGetFunction(&add, module, "add"));
  constexpr uint32_t kCount = 1000;
  CUdeviceptr in = Alloc(kCount * 4), out = Alloc(kCount * 4);
  std::vector<uint32_t> values(kCount);
  for (uint32_t i = 0; i < kCount; ++i) values[i] = i * i;
  EXPECT_CUDA(cuMemcpyHtoD(in, values.data(), kCount * 4));
  uint32_t n = kCount;
  void* params[] = {&out, &in, &n};
  const CUresult launched = cuLaunchKernel(add, 8, 1, 1, 128, 1, 1, 0, nullptr, params, nullptr);
#ifdef SMOLVM_KERNELS_RUN
  ASSERT_CUDA(launched);
  std::vector<uint32_t> results(kCount);
  EXPECT_CUDA(cuMemcpyDtoH(results.data(), out, kCount * 4));
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(results[i], values[i] + 41) << i;
#else
  EXPECT_EQ(launched, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_CUDA(cuCtxSynchronize());
#endif
}

// Function, variable and constant across modules, through cuLink*: out[0] = twice(shared) + step.
TEST_F(LibraryTest, LinksAndRuns) {
  constexpr char kHeader[] = ".version 7.0\n.target sm_70\n.address_size 64\n";
  const std::string caller = kHeader + std::string(R"(
.extern .func (.param .b32 r) twice(.param .b32 x);
.extern .global .align 4 .u32 shared_value;
.extern .const .align 4 .u32 step;
.global .align 4 .u32 mine = 100;
.visible .entry run(.param .u64 out)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.u32 %r1, [shared_value];
  {
    .param .b32 a;
    st.param.b32 [a], %r1;
    .param .b32 r;
    call.uni (r), twice, (a);
    ld.param.b32 %r2, [r];
  }
  ld.const.u32 %r3, [step];
  add.u32 %r4, %r2, %r3;
  ld.global.u32 %r5, [mine];
  add.u32 %r4, %r4, %r5;
  st.global.u32 [%rd1], %r4;
  ret;
}
)");
  const std::string callee = kHeader + std::string(R"(
.visible .global .align 4 .u32 shared_value = 7;
.visible .const .align 4 .u32 step = 1000;
.global .align 4 .u32 mine = 2;
.visible .func (.param .b32 r) twice(.param .b32 x)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [x];
  shl.b32 %r1, %r1, 1;
  ld.global.u32 %r2, [mine];
  add.u32 %r1, %r1, %r2;
  st.param.b32 [r], %r1;
  ret;
}
)");
  char error[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {error, reinterpret_cast<void*>(sizeof(error))};
  CUlinkState state = nullptr;
  ASSERT_CUDA(cuLinkCreate(2, options, values, &state));
  const auto add = [&](const std::string& text, const char* name) {
    return cuLinkAddData(state, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()), text.size() + 1,
                         name, 0, nullptr, nullptr);
  };
  ASSERT_CUDA(add(caller, "caller.ptx"));
  void* image = nullptr;
  size_t bytes = 0;
  EXPECT_EQ(cuLinkComplete(state, &image, &bytes), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(error).find("undefined reference to 'shared_value'"), std::string::npos)
      << error;
  ASSERT_CUDA(add(callee, "callee.ptx"));
  ASSERT_CUDA(cuLinkComplete(state, &image, &bytes));
  CUmodule module = nullptr;
  ASSERT_CUDA(cuModuleLoadData(&module, image));
  ASSERT_CUDA(cuLinkDestroy(state));
  CUdeviceptr address = 0;
  EXPECT_CUDA(cuModuleGetGlobal(&address, &bytes, module, "shared_value"));
  EXPECT_EQ(Word(address), 7u);
#ifdef SMOLVM_KERNELS_RUN
  CUfunction run = nullptr;
  ASSERT_CUDA(cuModuleGetFunction(&run, module, "run"));
  CUdeviceptr out = Alloc(4);
  void* params[] = {&out};
  ASSERT_CUDA(cuLaunchKernel(run, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
  EXPECT_EQ(Word(out), 2u * 7 + 2 + 1000 + 100);  // each module's own `mine`
#endif
}

TEST_F(LibraryTest, RefusesBadImagesWithAReason) {
  char error[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  const auto load = [&](const void* image) {
    void* values[] = {error, reinterpret_cast<void*>(sizeof(error))};
    CUmodule module = nullptr;
    error[0] = '\0';
    return cuModuleLoadDataEx(&module, image, 2, options, values);
  };
  EXPECT_EQ(
      load(".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry f() { bogus.s32; }\n"),
      CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::strlen(error), 0u);
  EXPECT_EQ(load(".version 99.0\n.target sm_70\n.address_size 64\n"),
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(load(".version 9.0\n.target sm_120\n.address_size 64\n"), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_NE(std::strlen(error), 0u);
  const uint64_t empty_container[] = {0x0010'0001'BA55'ED50, 0};
  EXPECT_EQ(load(empty_container), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

}  // namespace
}  // namespace smolvm::emulation
