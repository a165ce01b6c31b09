// When kernels run several threads at once, and that nobody can tell. What they compute is compared
// by running the other kernel tests in both tiers (see CMakeLists.txt).
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "host-daemon/emulation/codegen/compiler.h"
#include "protocol/log/log.h"
#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr const char* kCollatz = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry steps(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %p<4>;
  .reg .b32 %r<12>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r9, [rounds];
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r4, %r1, %r2, %r3;
  mov.u32 %r5, 0;
again:
  add.u32 %r6, %r4, 1;
next:
  setp.eq.u32 %p1, %r6, 1;
  @%p1 bra found;
  add.u32 %r5, %r5, 1;
  and.b32 %r7, %r6, 1;
  setp.eq.u32 %p2, %r7, 0;
  @%p2 bra even;
  mad.lo.u32 %r6, %r6, 3, 1;
  bra next;
even:
  shr.u32 %r6, %r6, 1;
  bra next;
found:
  sub.u32 %r9, %r9, 1;
  setp.ne.u32 %p3, %r9, 0;
  @%p3 bra again;
  mul.wide.u32 %rd2, %r4, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r5;
  ret;
}
)";

uint32_t Steps(uint32_t n) {
  uint32_t steps = 0;
  for (; n != 1; ++steps) n = n % 2 == 0 ? n / 2 : 3 * n + 1;
  return steps;
}

class VectorTierTest : public FeatureTest {
 protected:
  void SetUp() override {
    if (codegen::LanesOfHost() == 1)
      GTEST_SKIP() << "no AVX2 and FMA here: kernels run one thread at a time";
  }
  std::string LogOf(const std::function<void()>& run) {
    log::SetThreshold(log::Level::kInfo);
    testing::internal::CaptureStderr();
    run();
    log::SetThreshold(log::Level::kOff);
    return testing::internal::GetCapturedStderr();
  }
  std::string LoadFor(Tier tier, const char* text) {
    JitLog log;
    const LoadOptions options{.tier = tier};
    return Program::Load(text, options, TestArena(), &log, &program_) == CUDA_SUCCESS ? ""
                                                                                      : log.error;
  }
  static std::string Wide() { return "lanes=" + std::to_string(codegen::LanesOfHost()); }
};

TEST_F(VectorTierTest, ComesWhileAKernelRuns) {
  ASSERT_EQ(LoadFor(Tier::kAuto, kCollatz), "");
  constexpr uint32_t kBlocks = 512, kThreads = 128, kRounds = 40;
  auto* out = Zeroes<uint32_t>(kBlocks * kThreads);
  const std::string log = LogOf([&] {
    EXPECT_EQ(Run("steps", kBlocks, kThreads, Params().Add(out).Add(kRounds)), CUDA_SUCCESS);
  });
  EXPECT_THAT(log, testing::HasSubstr("lanes=1\n"));
  EXPECT_THAT(log, testing::HasSubstr(Wide()));
  for (uint32_t i = 0; i < kBlocks * kThreads; ++i)
    ASSERT_EQ(out[i], kRounds * Steps(i + 1)) << "thread " << i;
}

TEST_F(VectorTierTest, DoesNotComeForAShortKernel) {
  ASSERT_EQ(LoadFor(Tier::kAuto, kCollatz), "");
  auto* out = Zeroes<uint32_t>(32);
  const std::string log =
      LogOf([&] { EXPECT_EQ(Run("steps", 1, 32, Params().Add(out).Add(1u)), CUDA_SUCCESS); });
  EXPECT_THAT(log, testing::HasSubstr("lanes=1\n"));
  EXPECT_THAT(log, testing::Not(testing::HasSubstr(Wide())));
}

TEST_F(VectorTierTest, IsMadeAtOnceOrNeverWhenAskedFor) {
  auto* out = Zeroes<uint32_t>(32);
  const auto run = [&] {
    EXPECT_EQ(Run("steps", 1, 32, Params().Add(out).Add(1u)), CUDA_SUCCESS);
    EXPECT_EQ(out[26], 111u);  // of 27
  };
  ASSERT_EQ(LoadFor(Tier::kVector, kCollatz), "");
  EXPECT_THAT(LogOf(run), testing::HasSubstr(Wide()));
  program_.reset();
  ASSERT_EQ(LoadFor(Tier::kScalar, kCollatz), "");
  EXPECT_THAT(LogOf(run), testing::Not(testing::HasSubstr(Wide())));
}

TEST_F(VectorTierTest, RowsOfAnyWidthAreRunWhole) {
  ASSERT_EQ(LoadFor(Tier::kVector, kCollatz), "");
  for (const uint32_t width : {1u, 7u, 8u, 15u, 16u, 17u, 31u, 100u, 1023u}) {
    auto* out = Zeroes<uint32_t>(3 * width);
    ASSERT_EQ(Run("steps", 2, width, Params().Add(out).Add(1u)), CUDA_SUCCESS);
    for (uint32_t i = 0; i < 3 * width; ++i)
      ASSERT_EQ(out[i], i < 2 * width ? Steps(i + 1) : 0) << "width " << width << ", thread " << i;
  }
}

// Compilers put blocks out of line, so that a branch back need not close a loop; and "continue"
// goes back to a head that a later branch goes back to as well. Where the lanes meet, a count that
// is the same for all of them goes up once.
TEST_F(VectorTierTest, LanesMeetWhereverTheirBlocksLie) {
  ASSERT_EQ(LoadFor(Tier::kVector, R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry out_of_line(.param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  mov.u32 %r5, 0;
  and.b32 %r2, %r1, 1;
  setp.eq.u32 %p1, %r2, 1;
  @%p1 bra far;
  add.u32 %r3, %r1, 10;
join:
  add.u32 %r5, %r5, 1;
  mad.lo.u32 %r4, %r5, 1000, %r3;
  st.global.u32 [%rd1], %r4;
  ret;
far:
  add.u32 %r3, %r1, 20;
  bra join;
}
.visible .entry continues(.param .u64 out)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  mov.u32 %r5, 0;
  mov.u32 %r3, 0;
  and.b32 %r2, %r1, 3;
head:
  add.u32 %r3, %r3, 1;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 sub.u32 %r2, %r2, 1;
  @%p1 bra head;
  add.u32 %r5, %r5, 1;
  and.b32 %r2, %r1, 3;
  setp.lt.u32 %p2, %r5, 3;
  @%p2 bra head;
  mad.lo.u32 %r4, %r5, 1000, %r3;
  st.global.u32 [%rd1], %r4;
  ret;
}
)"),
            "");
  auto* out = Zeroes<uint32_t>(64);
  ASSERT_EQ(Run("out_of_line", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 1010 + i + i % 2 * 10) << "thread " << i;
  ASSERT_EQ(Run("continues", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], 3003 + i % 4 * 3) << "thread " << i;
}

// What is done for one lane after the other: asynchronous copies, mbarriers, sleep.
TEST_F(VectorTierTest, LanesTakeTurnsWhereTheyMust) {
  ASSERT_EQ(LoadFor(Tier::kVector, R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry turns(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .b64 %rd<8>;
  .shared .align 8 .b64 barriers[64];
  .shared .align 4 .b32 words[64];
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  mov.u32 %r2, barriers;
  mad.lo.u32 %r2, %r1, 8, %r2;
  mbarrier.init.shared.b64 [%r2], 1;
  mbarrier.arrive.shared.b64 %rd4, [%r2];
  nanosleep.u32 %r1;
  mbarrier.test_wait.shared.b64 %p1, [%r2], %rd4;
  mov.u32 %r3, words;
  mad.lo.u32 %r3, %r1, 4, %r3;
  cp.async.ca.shared.global [%r3], [%rd1], 4;
  cp.async.wait_all;
  ld.shared.u32 %r4, [%r3];
  @!%p1 mov.u32 %r4, 0;
  st.global.u32 [%rd2], %r4;
  ret;
}
)"),
            "");
  std::vector<uint32_t> in(64);
  for (uint32_t i = 0; i < in.size(); ++i) in[i] = 1000 + i;
  auto* out = Zeroes<uint32_t>(in.size());
  const std::string log = LogOf(
      [&] { EXPECT_EQ(Run("turns", 1, 64, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS); });
  EXPECT_THAT(log, testing::HasSubstr(Wide()));
  EXPECT_EQ(std::vector<uint32_t>(out, out + in.size()), in);
}

// The fault is one of the processor's, in an access of many threads: a page that no allocation
// owns.
TEST_F(VectorTierTest, AFaultNamesItsThread) {
  std::ifstream file(std::filesystem::path(SMOLVM_PTX_KERNELS) / "faults.ptx");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  ASSERT_EQ(LoadFor(Tier::kVector, text.c_str()), "");
  auto* out = Zeroes<uint32_t>(1024);
  const auto end = reinterpret_cast<uint64_t>(out) + 4096;
  ASSERT_EQ(end % 4096, 0u);
  for (const char* kernel : {"writes_its_word", "writes_after_a_barrier"}) {
    SCOPED_TRACE(kernel);
    const std::string log = LogOf(
        [&] { EXPECT_EQ(Run(kernel, 4, 256, Params().Add(out + 5)), CUDA_ERROR_ILLEGAL_ADDRESS); });
    EXPECT_THAT(log, testing::HasSubstr(Wide()));
    EXPECT_THAT(log, testing::HasSubstr("block=3,0,0 thread=251,0,0"));
    EXPECT_THAT(log, testing::HasSubstr(fmt::format("address=0x{:x}", end)));
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(out[i], 0u);
  }
  // One that the compiled check finds: misaligned.
  const std::string misaligned = LogOf([&] {
    EXPECT_EQ(Run("writes_its_word", 1, 32, Params().Add(reinterpret_cast<uint64_t>(out) + 2)),
              CUDA_ERROR_MISALIGNED_ADDRESS);
  });
  EXPECT_THAT(misaligned, testing::HasSubstr("block=0,0,0 thread=0,0,0"));
  const std::string trapped =
      LogOf([&] { EXPECT_EQ(Run("traps", 1, 64, Params().Add(37u)), CUDA_ERROR_LAUNCH_FAILED); });
  EXPECT_THAT(trapped, testing::HasSubstr("thread=37,0,0"));
}

}  // namespace
}  // namespace smolvm::emulation
