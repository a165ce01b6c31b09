// Whole kernels, from PTX text to results.
#include <cmath>

#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

using Kernels = ProgramTest;

constexpr const char* kVectorAdd = R"(
.version 6.4
.target sm_50
.address_size 64
.visible .entry vector_add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {
  .reg .pred %p<2>;
  .reg .f32 %f<4>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<11>;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r1, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r1, %r2;
  @%p1 bra DONE;
  cvta.to.global.u64 %rd4, %rd1;
  mul.wide.u32 %rd5, %r1, 4;
  add.s64 %rd6, %rd4, %rd5;
  cvta.to.global.u64 %rd7, %rd2;
  add.s64 %rd8, %rd7, %rd5;
  ld.global.f32 %f1, [%rd6];
  ld.global.f32 %f2, [%rd8];
  add.f32 %f3, %f1, %f2;
  cvta.to.global.u64 %rd9, %rd3;
  add.s64 %rd10, %rd9, %rd5;
  st.global.f32 [%rd10], %f3;
DONE:
  ret;
}
)";

TEST_F(Kernels, VectorAdd) {
  ASSERT_EQ(Load(kVectorAdd), "");
  constexpr uint32_t kCount = 100'003;
  std::vector<float> a(kCount), b(kCount);
  for (uint32_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i) * 0.5f;
    b[i] = 1.0f / static_cast<float>(i + 1);
  }
  float* c = Allocate<float>(kCount);
  ASSERT_EQ(Run("vector_add", (kCount + 255) / 256, 256,
                Params().Add(Upload(a)).Add(Upload(b)).Add(c).Add(kCount)),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(c[i], a[i] + b[i]) << i;
}

TEST_F(Kernels, KernelInfo) {
  ASSERT_EQ(Load(kVectorAdd), "");
  ASSERT_EQ(program_->kernels().size(), 1u);
  const KernelInfo& info = program_->kernels()[0];
  EXPECT_EQ(info.name, "vector_add");
  ASSERT_EQ(info.params.size(), 4u);
  EXPECT_EQ(info.params[3].offset, 24u);
  EXPECT_EQ(info.params[3].size, 4u);
  EXPECT_EQ(info.param_bytes, 28u);
  EXPECT_EQ(info.ptx_version, 50);
  EXPECT_EQ(info.binary_version, 90);
}

TEST_F(Kernels, BadPointersAreIllegalAddresses) {
  ASSERT_EQ(Load(kVectorAdd), "");
  float* good = Allocate<float>(64);
  const auto run = [&](uint64_t a) {
    return Run("vector_add", 1, 64, Params().Add(a).Add(good).Add(good).Add(uint32_t{64}));
  };
  EXPECT_EQ(run(0), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(reinterpret_cast<uint64_t>(&good)),
            CUDA_ERROR_ILLEGAL_ADDRESS);  // the host's own memory
  EXPECT_EQ(run(~uint64_t{3}), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(kArenaBase + TestArena().reserved_bytes()), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(kArenaBase + TestArena().device_bytes() - 4096), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(run(reinterpret_cast<uint64_t>(good) + 2), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(run(reinterpret_cast<uint64_t>(good)), CUDA_SUCCESS);
}

// Behind device memory lie the runtime's own windows: of other blocks, other kernels, and of this
// kernel's parameters.
TEST_F(Kernels, StoresBehindDeviceMemoryAreIllegalAddresses) {
  ASSERT_EQ(Load(R"(
.version 6.4
.target sm_50
.address_size 64
.visible .entry global(.param .u64 to) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry generic(.param .u64 to) {
  .reg .b64 %rd<2>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [to];
  mov.u32 %r1, 7;
  st.u32 [%rd1], %r1;
  ret;
}
.visible .entry own_shared(.param .u64 to, .param .u64 offset) {
  .shared .align 4 .b32 word;
  .reg .b64 %rd<5>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd4, [offset];
  mov.u64 %rd2, word;
  cvta.shared.u64 %rd3, %rd2;
  add.u64 %rd3, %rd3, %rd4;
  mov.u32 %r1, 7;
  st.u32 [%rd3], %r1;
  ld.u32 %r2, [%rd3];
  st.global.u32 [%rd1], %r2;
  ret;
}
)"),
            "");
  const uint64_t scratch = TestArena().scratch_base();
  for (const uint64_t offset : {0, 64, 4096 * 4, 4096 * 5}) {
    EXPECT_EQ(Run("global", 1, 1, Params().Add(scratch + offset)), CUDA_ERROR_ILLEGAL_ADDRESS)
        << offset;
  }
  // At 64 is the grid's own workspace, where cooperative groups synchronise by generic addresses.
  for (const uint64_t offset : {0, 32, 128, 4096 * 4, 4096 * 5}) {
    EXPECT_EQ(Run("generic", 1, 1, Params().Add(scratch + offset)), CUDA_ERROR_ILLEGAL_ADDRESS)
        << offset;
  }
  uint32_t* out = Allocate<uint32_t>(1);
  EXPECT_EQ(Run("global", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_EQ(Run("generic", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  *out = 0;
  EXPECT_EQ(Run("own_shared", 1, 1, Params().Add(out).Add(uint64_t{0})), CUDA_SUCCESS);
  EXPECT_EQ(*out, 7u);
  EXPECT_EQ(Run("own_shared", 1, 1, Params().Add(out).Add(uint64_t{2})),
            CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(Run("own_shared", 1, 1, Params().Add(out).Add(uint64_t{1} << 16)),
            CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace smolvm::emulation
