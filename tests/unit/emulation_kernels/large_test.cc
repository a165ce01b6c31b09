// Kernels that are large in one way or another: they compile, in a time that follows their size, or
// are refused by name.
#include <fmt/format.h>
#include <pthread.h>

#include <functional>

#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr const char* kHeader = ".version 8.0\n.target sm_90\n.address_size 64\n";

std::string Kernel(const std::string& body) {
  return ".visible .entry k(.param .u64 out)\n{\n.reg .pred %p;\n.reg .b32 %r<16>;\n"
         ".reg .b64 %d<4>;\nld.param.u64 %d1, [out];\n" +
         body + "\nret;\n}\n";
}

std::string Lines(int count, const std::function<std::string(int)>& line) {
  std::string text;
  for (int k = 0; k < count; ++k) text += line(k) + "\n";
  return text;
}

// Each block may go on to one that lies anywhere.
std::string Blocks(int count) {
  return kHeader + Kernel("mov.u32 %r1, 0;\n" +
                          Lines(count,
                                [count](int k) {
                                  return fmt::format(
                                      "L{}: add.s32 %r1, %r1, 1;\n"
                                      "setp.eq.s32 %p, %r1, {};\n@%p bra L{};",
                                      k, 1000000 + k, int64_t{k} * 7919 % count);
                                }) +
                          "st.global.u32 [%d1], %r1;");
}

std::string Straight(int count) {
  return kHeader + Kernel("ld.global.u32 %r1, [%d1];\n" +
                          Lines(count,
                                [](int k) {
                                  return fmt::format("mad.lo.s32 %r{}, %r{}, %r{}, {};", 1 + k % 8,
                                                     1 + k * 3 % 8, 1 + k * 5 % 8, k);
                                }) +
                          "st.global.u32 [%d1], %r1;");
}

// Functions that call one another in a chain, and kernels that call the last.
std::string Chain(int functions, int kernels) {
  return kHeader +
         Lines(functions,
               [](int k) {
                 return fmt::format(".func f{}() {{ {} ret; }}", k,
                                    k == 0 ? "" : fmt::format("call f{};", k - 1));
               }) +
         Lines(kernels,
               [functions](int k) {
                 return fmt::format(".visible .entry k{}() {{ call f{}; ret; }}", k, functions - 1);
               }) +
         Kernel(fmt::format("call f{};", functions - 1));
}

std::string Jumps(int count) {
  std::string labels;
  for (int k = 0; k < count; ++k) labels += fmt::format("{}L{}", k == 0 ? "" : ", ", k);
  return kHeader +
         Kernel("ld.volatile.global.u32 %r1, [%d1];\nts: .branchtargets " + labels + ";\n" +
                Lines(count, [](int k) {
                  return fmt::format("L{}: add.s32 %r1, %r1, {};\nbrx.idx %r1, ts;", k, k);
                }));
}

class LargeKernel : public FeatureTest {
 protected:
  CUresult LoadLimited(const std::string& ptx, uint64_t limit_ms) {
    JitLog log;
    return Program::Load(ptx.c_str(), {.tier = TierUnderTest(), .compile_limit_ms = limit_ms},
                         TestArena(), &log, &program_);
  }
  CUresult RunKernel(uint32_t* out) { return Run("k", 1, 1, Params().Add(out)); }
};

// A session's lane has this much of a stack, and the compiler recurses.
TEST_F(LargeKernel, CompilesFromAThreadWithASmallStack) {
  ASSERT_EQ(LoadLimited(Blocks(500), 0), CUDA_SUCCESS);
  uint32_t* out = Zeroes<uint32_t>(1);
  CUresult result = CUDA_ERROR_UNKNOWN;
  const std::function<void()> body = [&] { result = RunKernel(out); };
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 512 << 10);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* run) -> void* {
                  (*static_cast<const std::function<void()>*>(run))();
                  return nullptr;
                },
                const_cast<std::function<void()>*>(&body)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(*out, 500u);
}

// What is beyond full effort gives the same results.
TEST_F(LargeKernel, RunsWithLessEffort) {
  ASSERT_EQ(LoadLimited(Blocks(6000), 3000), CUDA_SUCCESS);
  uint32_t* out = Zeroes<uint32_t>(1);
  EXPECT_EQ(RunKernel(out), CUDA_SUCCESS);
  EXPECT_EQ(*out, 6000u);
}

TEST_F(LargeKernel, StraightLinesGiveTheSameWhateverTheEffort) {
  for (const int count : {30000, 15000}) {
    ASSERT_EQ(LoadLimited(Straight(count), 0), CUDA_SUCCESS);
    uint32_t* out = Zeroes<uint32_t>(1);
    *out = 12345;
    ASSERT_EQ(RunKernel(out), CUDA_SUCCESS);
    uint32_t r[9] = {0, 12345};
    for (int k = 0; k < count; ++k) {
      r[1 + k % 8] = r[1 + k * 3 % 8] * r[1 + k * 5 % 8] + static_cast<uint32_t>(k);
    }
    EXPECT_EQ(*out, r[1]) << count;
  }
}

TEST_F(LargeKernel, IsRefusedWhenItWouldTakeTooLong) {
  for (const std::string& ptx : {Straight(120000), Jumps(1500)}) {
    ASSERT_EQ(LoadLimited(ptx, 3000), CUDA_SUCCESS);
    uint32_t* out = Zeroes<uint32_t>(1);
    testing::internal::CaptureStderr();
    EXPECT_EQ(RunKernel(out), CUDA_ERROR_NOT_SUPPORTED);
    testing::internal::GetCapturedStderr();
  }
}

TEST_F(LargeKernel, CallsInALongChainAreNoBurden) {
  ASSERT_EQ(LoadLimited(Chain(3000, 100), 3000), CUDA_SUCCESS);
  EXPECT_EQ(RunKernel(Zeroes<uint32_t>(1)), CUDA_SUCCESS);
}

TEST_F(LargeKernel, RegistersThatNothingUsesAreNoBurden) {
  std::string names;
  for (int k = 0; k < 500000; ++k) names += fmt::format("{}a{}", k == 0 ? "" : ",", k);
  ASSERT_EQ(LoadLimited(kHeader + Kernel(".reg .b32 " + names +
                                         ";\nmov.u32 a5, 1;\n"
                                         "st.global.u32 [%d1], a5;"),
                        3000),
            CUDA_SUCCESS);
  uint32_t* out = Zeroes<uint32_t>(1);
  EXPECT_EQ(RunKernel(out), CUDA_SUCCESS);
  EXPECT_EQ(*out, 1u);
}

}  // namespace
}  // namespace smolvm::emulation
