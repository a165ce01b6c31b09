// What an operand may be, which of them may be left out, and which decide nothing.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "protocol/log/log.h"
#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

class OperandTest : public FeatureTest {
 protected:
  static std::string LogOf(const std::function<void()>& run) {
    log::SetThreshold(log::Level::kError);
    testing::internal::CaptureStderr();
    run();
    log::SetThreshold(log::Level::kOff);
    return testing::internal::GetCapturedStderr();
  }
};

constexpr uint32_t kThreads = 64;

// PTX ISA, "cp.async": of cp-size bytes the first src-size are copied, and the others zero; all are
// zero where ignore-src holds. A cache policy decides nothing.
TEST_F(OperandTest, AsynchronousCopiesOfEachForm) {
  LoadFile("async_copies.ptx");
  constexpr uint32_t kCases = 13, kRow = 16;
  std::vector<uint8_t> in(kThreads * kRow);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 7 + 1);
  auto* out = Zeroes<uint8_t>(kCases * kThreads * kRow);
  ASSERT_EQ(Run("async_copies", 1, kThreads, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    const uint32_t by_thread = thread % 17, odd = thread % 2;
    struct Case {
      uint32_t size, copied;
    };
    const Case cases[kCases] = {
        {16, 16}, {16, 0}, {16, 4},         {16, 11},       {16, by_thread}, {16, 16 - 16 * odd},
        {16, 16}, {16, 8}, {16, by_thread}, {16, 16 * odd}, {8, 3},          {4, 1},
        {16, 0}};
    for (uint32_t n = 0; n < kCases; ++n) {
      const uint8_t* row = out + (n * kThreads + thread) * kRow;
      for (uint32_t byte = 0; byte < kRow; ++byte) {
        const uint32_t want = byte < cases[n].copied ? in[thread * kRow + byte]
                              : byte < cases[n].size ? 0
                                                     : 0xee;
        ASSERT_EQ(row[byte], want) << "case " << n << ", thread " << thread << ", byte " << byte;
      }
    }
  }
}

TEST_F(OperandTest, HintsChangeNothing) {
  LoadFile("hints.ptx");
  auto* in = reinterpret_cast<uint32_t*>(Upload<uint32_t>({11, 22, 33, 44}));
  auto* out = Zeroes<uint32_t>(128);
  Params params;
  params.Add(in).Add(out);
  while (params.span().size() < 192) params.Add(uint64_t{0});  // `map` lies at 64
  ASSERT_EQ(Run("hints", 1, 1, params), CUDA_SUCCESS);
  const auto half = std::bit_cast<uint32_t>(0.5f), quarter = std::bit_cast<uint32_t>(0.25f);
  const std::vector<uint32_t> want = {11, 22, 33,   44,   11,      22,      33, 44,
                                      22, 0,  half, half, quarter, quarter, 0,  0};
  EXPECT_EQ(std::vector<uint32_t>(out, out + 16), want);
  const auto address = reinterpret_cast<uint64_t>(in);
  uint64_t exchanged[2];
  memcpy(exchanged, out + 16, sizeof exchanged);
  EXPECT_EQ(exchanged[0], address);
  EXPECT_EQ(exchanged[1], address);
}

TEST_F(OperandTest, BracesAroundOne) {
  LoadFile("operands.ptx");
  std::vector<uint32_t> in(kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) in[i] = i * 0x10203 + 9;
  auto* out = Zeroes<uint32_t>(2 * kThreads);
  ASSERT_EQ(Run("braces", 1, kThreads, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(out[2 * i], i < 40 ? in[i] : 0) << i;
    EXPECT_EQ(out[2 * i + 1], in[i] >> 16 | 5u << 16) << i;
  }
}

TEST_F(OperandTest, VectorsOfRegisters) {
  LoadFile("operands.ptx");
  std::vector<float> in(4 * kThreads);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i) + 0.25f;
  constexpr uint32_t kWords = 28;
  auto* out = Zeroes<uint32_t>(kWords * kThreads);
  ASSERT_EQ(Run("vectors_of_registers", 1, kThreads, Params().Add(Upload(in)).Add(out)),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) {
    SCOPED_TRACE(i);
    const float* v = &in[4 * i];
    const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
    const uint32_t x = bits(v[0]), w = bits(v[3]);
    const auto swapped = [](uint32_t word) { return word << 16 | word >> 16; };
    const std::vector<uint32_t> want = {// {w, z, 3, x} by way of {x: w, w: z, z: x}
                                        bits(v[3]), bits(v[2]), bits(v[0]), bits(v[2]),
                                        // the pair {w, x}, and its halves backwards
                                        w, x, 0, 0, swapped(x), swapped(w), 5, 0,
                                        // the function's sums
                                        bits(v[0] + 0.5f), bits(v[1] + 0.5f), bits(v[2] + v[3]),
                                        bits(v[3] + v[0]),
                                        // %ntid, %tid.x and %ctaid.x, and words[3]
                                        kThreads, 1, 1, 0, i, 0, 103};
    EXPECT_EQ(std::vector<uint32_t>(out + kWords * i, out + kWords * i + want.size()), want);
  }
}

// An index counts elements, as ptxas has it also for arrays of arrays: mine[9] is 36 bytes behind.
TEST_F(OperandTest, ElementsOfArrays) {
  LoadFile("operands.ptx");
  constexpr uint32_t kWords = 16;
  auto* out = Zeroes<uint32_t>(kWords * kThreads);
  ASSERT_EQ(Run("elements_of_arrays", 1, kThreads, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) {
    const uint32_t k = i % 4;
    const std::vector<uint32_t> want = {103,     102, 101, 104,     100 + k, 102 + k,
                                        100 + k, 106, 107, 107 - k, 36,      106};
    EXPECT_EQ(std::vector<uint32_t>(out + kWords * i, out + kWords * i + want.size()), want) << i;
  }
}

constexpr const char* kOwnParam = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry own(.param .u64 out)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .param .align 8 .b8 box[24];
  .param .b32 word;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 16;
  add.u64 %rd1, %rd1, %rd2;
  mul.lo.u32 %r2, %r1, 3;
  setp.lt.u32 %p1, %r1, 20;
  st.param.b32 [box+4], %r1;
  st.param.v2.b32 [box+8], {%r2, 7};
  @%p1 st.param.b32 [word], %r2;
  bar.sync 0;
  ld.param.b32 %r3, [box+4];
  ld.param.v2.b32 {%r4, %r5}, [box+8];
  ld.param.b32 %r6, [word];
  st.global.v4.b32 [%rd1], {%r3, %r4, %r5, %r6};
  ret;
}
)";

TEST_F(OperandTest, AParamVariableOfTheBodyIsOneForEachThread) {
  ASSERT_EQ(Load(kOwnParam), "");
  auto* out = Zeroes<uint32_t>(4 * kThreads);
  ASSERT_EQ(Run("own", 1, kThreads, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(out[4 * i], i);
    EXPECT_EQ(out[4 * i + 1], 3 * i);
    EXPECT_EQ(out[4 * i + 2], 7u);
    EXPECT_EQ(out[4 * i + 3], i < 20 ? 3 * i : 0) << i;  // zero where nothing was written
  }
}

// What a callee leaves out, and what was never written, is zero, and no address of the worker's.
TEST_F(OperandTest, ParametersThatNobodyWroteAreZero) {
  ASSERT_EQ(Load(R"(.version 8.0
.target sm_90
.address_size 64
.func (.param .b64 r) forgets(.param .b64 a)
{
  ret;
}
.visible .entry unwritten(.param .u64 out)
{
  .reg .b64 %rd<4>;
  .param .b64 never;
  .param .b64 given;
  .param .b64 result;
  ld.param.u64 %rd1, [out];
  ld.param.b64 %rd2, [never];
  st.param.b64 [given], %rd1;
  call (result), forgets, (given);
  ld.param.b64 %rd3, [result];
  st.global.v2.b64 [%rd1], {%rd2, %rd3};
  ret;
}
.visible .entry follows(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  .param .b64 never;
  ld.param.b64 %rd2, [never];
  ld.global.b32 %r1, [%rd2];
  ret;
}
)"),
            "");
  auto* out = Upload<uint64_t>({1, 2});
  ASSERT_EQ(Run("unwritten", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_EQ(out[0], 0u);
  EXPECT_EQ(out[1], 0u);
  EXPECT_EQ(Run("follows", 1, 1, Params().Add(out)), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// The address of a function's parameter is one of local memory (PTX ISA, "mov"): nvcc takes it of
// structures that are indexed. What is written there is the parameter.
TEST_F(OperandTest, ParametersOfFunctionsHaveAddresses) {
  ASSERT_EQ(Load(R"(.version 8.0
.target sm_90
.address_size 64
.func (.param .b32 r) sums(.param .align 4 .b8 a[32], .param .b32 k, .param .b32 deep)
{
  .reg .pred %p<2>;
  .reg .b32 %r<9>;
  .reg .b64 %rd<6>;
  .local .align 4 .b32 mine[2];
  .param .b32 back;
  mov.b64 %rd1, a;
  cvta.local.u64 %rd2, %rd1;
  ld.param.u32 %r1, [k];
  st.local.b32 [mine], %r1;
  mad.wide.u32 %rd3, %r1, 4, %rd2;
  ld.u32 %r2, [%rd3];
  add.u32 %r2, %r2, 1000;
  st.u32 [%rd3], %r2;
  ld.param.u32 %r3, [deep];
  mov.u32 %r4, 0;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra bottom;
  sub.u32 %r3, %r3, 1;
  .param .b32 deeper;
  st.param.b32 [deeper], %r3;
  call (back), sums, (a, k, deeper);
  ld.param.b32 %r4, [back];
bottom:
  cvta.to.local.u64 %rd4, %rd2;
  ld.local.b32 %r5, [%rd4+4];
  ld.param.b32 %r6, [a+8];
  ld.local.b32 %r7, [mine];
  add.u32 %r4, %r4, %r5;
  add.u32 %r4, %r4, %r6;
  add.u32 %r4, %r4, %r7;
  st.param.b32 [r], %r4;
  ret;
}
.visible .entry indexes(.param .u64 out)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  .param .align 4 .b8 a[32];
  .param .b32 k, deep, r;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd1, %rd1, %rd2;
  st.param.b32 [a+4], %r1;
  st.param.b32 [a+8], 20;
  and.b32 %r2, %r1, 3;
  st.param.b32 [k], %r2;
  st.param.b32 [deep], 2;
  call (r), sums, (a, k, deep);
  ld.param.b32 %r3, [r];
  st.global.b32 [%rd1], %r3;
  ret;
}
)"),
            "");
  auto* out = Zeroes<uint32_t>(kThreads);
  ASSERT_EQ(Run("indexes", 1, kThreads, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) {
    const uint32_t k = i % 4;
    // Each call adds to its own copy, and hands it on as it is then.
    uint32_t want = 0;
    for (uint32_t calls = 1; calls <= 3; ++calls)
      want += i + 20 + k + (k == 1 || k == 2 ? 1000 * calls : 0);
    EXPECT_EQ(out[i], want) << i;
  }
}

// cp.async.mbarrier.arrive: with .noinc one of the arrivals that were counted, else none.
TEST_F(OperandTest, CopiesArriveAtBarriersInMemory) {
  ASSERT_EQ(Load(R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry arrives(.param .u64 in, .param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
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
  mov.u32 %r3, words;
  mad.lo.u32 %r3, %r1, 4, %r3;
  mbarrier.init.shared.b64 [%r2], 2;
  cp.async.ca.shared.global [%r3], [%rd1], 4;
  cp.async.mbarrier.arrive.shared.b64 [%r2];
  mbarrier.test_wait.parity.shared.b64 %p1, [%r2], 0;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];
  mbarrier.test_wait.parity.shared.b64 %p2, [%r2], 0;
  mbarrier.arrive.shared.b64 %rd4, [%r2];
  mbarrier.test_wait.parity.shared.b64 %p3, [%r2], 0;
  ld.shared.u32 %r4, [%r3];
  @%p1 add.u32 %r4, %r4, 1000000;
  @%p2 add.u32 %r4, %r4, 2000000;
  @%p3 add.u32 %r4, %r4, 4000000;
  st.global.u32 [%rd2], %r4;
  ret;
}
)"),
            "");
  std::vector<uint32_t> in(kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) in[i] = 500 + i;
  auto* out = Zeroes<uint32_t>(kThreads);
  ASSERT_EQ(Run("arrives", 1, kThreads, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) EXPECT_EQ(out[i], 4000500 + i);
}

// One flag for all, as in NVIDIA's assembler: the carry of x + y, and for differences of x + ~y
// + 1. The numbers are those that ptxas 13.0 folds each pair to.
TEST_F(OperandTest, TheCarryFlagGoesFromSumsToDifferencesAndBack) {
  struct Row {
    const char* first;
    const char* second;
    const char* third;
    uint32_t a, b;
    uint32_t want;
  };
  const char* const kSum = "addc.u32 %r4, %r5, %r6;";              // 100 + 3
  const char* const kDifference = "subc.u32 %r4, %r5, %r6;";       // 100 - 3
  const char* const kProduct = "madc.lo.u32 %r4, %r5, %r6, %r8;";  // 100 * 3 + 1000
  const char* const kSumOn = "addc.cc.u32 %r3, %r5, %r6;";
  const char* const kDifferenceOn = "subc.cc.u32 %r3, %r5, %r6;";
  const char* const kTwice = "addc.u32 %r4, %r8, %r8;";    // 1000 + 1000
  const char* const kNothing = "subc.u32 %r4, %r8, %r8;";  // 1000 - 1000
  const char* const kAdd = "add.cc.u32 %r3, %r1, %r2;";
  const char* const kSub = "sub.cc.u32 %r3, %r1, %r2;";
  const char* const kMad = "mad.lo.cc.u32 %r3, %r1, %r2, %r7;";  // a * b - 6
  constexpr uint32_t kMost = ~0u;
  const std::vector<Row> rows = {
      {kAdd, "", kSum, 5, 7, 103},
      {kAdd, "", kSum, kMost, 1, 104},
      {kAdd, "", kDifference, 5, 7, 96},
      {kAdd, "", kDifference, kMost, 1, 97},
      {kAdd, "", kProduct, 5, 7, 1300},
      {kAdd, "", kProduct, kMost, 1, 1301},
      {kSub, "", kSum, 5, 7, 103},
      {kSub, "", kSum, 7, 5, 104},
      {kSub, "", kSum, 7, 7, 104},
      {kSub, "", kDifference, 5, 7, 96},
      {kSub, "", kDifference, 7, 5, 97},
      {kSub, "", kDifference, 7, 7, 97},
      {kSub, "", kProduct, 5, 7, 1300},
      {kSub, "", kProduct, 7, 5, 1301},
      {kMad, "", kSum, 5, 7, 104},
      {kMad, "", kDifference, 5, 7, 97},
      {kMad, "", kDifference, 1, 1, 96},
      {kAdd, kSumOn, kTwice, 5, 7, 2000},
      {kAdd, kSumOn, kNothing, 5, 7, kMost},
      {kAdd, kDifferenceOn, kTwice, 5, 7, 2001},
      {kAdd, kDifferenceOn, kNothing, 5, 7, 0},
      {kSub, kSumOn, kTwice, 5, 7, 2000},
      {kSub, kSumOn, kNothing, 5, 7, kMost},
      {kSub, kDifferenceOn, kTwice, 5, 7, 2001},
      {kSub, kDifferenceOn, kNothing, 5, 7, 0},
  };
  std::string text = R"(.version 8.7
.target sm_90
.address_size 64
.visible .entry carries(.param .u64 in, .param .u64 out)
{
  .reg .b64 %rd<4>;
  .reg .b32 %r<9>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd2, %r1, 100, %rd2;
  mov.b32 %r5, 100;
  mov.b32 %r6, 3;
  mov.b32 %r7, -6;
  mov.b32 %r8, 1000;
)";
  std::vector<uint32_t> in;
  for (size_t k = 0; k < rows.size(); ++k) {
    in.push_back(rows[k].a);
    in.push_back(rows[k].b);
    text += fmt::format("ld.global.v2.b32 {{%r1, %r2}}, [%rd1+{}];\n{}\n{}\n{}\n", 8 * k,
                        rows[k].first, rows[k].second, rows[k].third);
    text += fmt::format("st.global.b32 [%rd2+{}], %r4;\n", 4 * k);
  }
  ASSERT_EQ(rows.size(), 25u);  // 100 bytes a thread
  ASSERT_EQ(Load(text + "ret;\n}\n"), "");
  auto* out = Zeroes<uint32_t>(rows.size() * kThreads);
  ASSERT_EQ(Run("carries", 1, kThreads, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (size_t k = 0; k < rows.size() * kThreads; ++k) {
    const Row& row = rows[k % rows.size()];
    EXPECT_EQ(out[k], row.want) << row.first << row.second << row.third << " " << row.a << " "
                                << row.b;
  }
}

constexpr const char* kRefused = R"(.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) cudaDeviceSynchronize(.param .b32 a);
.visible .entry calls(.param .u64 out)
{
  .param .b32 a, r;
  st.param.b32 [a], 5;
  call (r), cudaDeviceSynchronize, (a);
  ret;
}
.visible .entry samples(.param .u64 texture)
{
  .reg .b64 %rd<2>;
  .reg .f32 %f<6>;
  ld.param.u64 %rd1, [texture];
  tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}];
  ret;
}
.visible .entry never_samples(.param .u64 texture)
{
  .reg .b64 %rd<2>;
  .reg .f32 %f<6>;
  ret;
  tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f5}];
  ret;
}
)";

// The device runtime's functions are nowhere defined; modules that call others are refused whole.
TEST_F(OperandTest, ARefusalNamesItsReasonInBothLogs) {
  using testing::HasSubstr;
  JitLog jit;
  ASSERT_EQ(Program::Load(kRefused, {.tier = TierUnderTest()}, TestArena(), &jit, &program_),
            CUDA_SUCCESS);
  const std::string extern_function = "unresolved extern function `cudaDeviceSynchronize`";
  const std::string instruction = "unsupported PTX instruction `tex.2d.v4.f32.f32` (line 17)";
  EXPECT_THAT(jit.error, HasSubstr("kernel 'calls' cannot run: " + extern_function));
  EXPECT_THAT(jit.error, HasSubstr("kernel 'samples' cannot run: " + instruction));
  EXPECT_THAT(jit.error, testing::Not(HasSubstr("never_samples")));
  const std::string compiled = LogOf([&] {
    EXPECT_EQ(program_->Compile(KernelNamed("calls")), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(program_->Compile(KernelNamed("calls")), CUDA_ERROR_NOT_SUPPORTED);
  });
  EXPECT_THAT(compiled, HasSubstr("event=kernel_refused kernel=calls"));
  EXPECT_THAT(compiled, HasSubstr(extern_function));
  EXPECT_EQ(std::ranges::count(compiled, '\n'), 1) << compiled;
  const std::string launched = LogOf([&] {
    EXPECT_EQ(Run("samples", 1, 1, Params().Add(uint64_t{0})), CUDA_ERROR_NOT_SUPPORTED);
  });
  EXPECT_THAT(launched, HasSubstr("event=kernel_refused kernel=samples"));
  EXPECT_THAT(launched, HasSubstr(instruction));
  EXPECT_EQ(Run("never_samples", 1, 1, Params().Add(uint64_t{0})), CUDA_SUCCESS);
}

}  // namespace
}  // namespace smolvm::emulation
