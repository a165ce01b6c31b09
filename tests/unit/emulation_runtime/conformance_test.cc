// CUDA C++ through nvcc: tests/conformance/kernels/features.cu, one kernel per feature, against
// host C++.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>

#include "tests/unit/emulation_runtime/cuda_source.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

class Conformance : public ProgramTest {
 protected:
  void SetUp() override {
    static const CompiledCuda source = CompileCuda("features.cu");
    if (source.ptx.empty()) {
      ASSERT_FALSE(source.failed) << source.problem;
      GTEST_SKIP() << source.problem;
    }
    ASSERT_EQ(Load(source.ptx), "");
  }
  template <typename T>
  T* Zeroes(size_t count) {
    T* to = Allocate<T>(count);
    memset(to, 0, count * sizeof(T));
    return to;
  }
  static std::vector<int> Iota(size_t count, int factor = 1) {
    std::vector<int> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<int>(i) * factor;
    return values;
  }
};

TEST_F(Conformance, VariablesAndInitialisers) {
  int* out = Zeroes<int>(64);
  ASSERT_EQ(Run("variables", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  const int table[] = {1, 2, 3, 5, 8, 13, 21, 34};
  const int grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
  for (int i = 0; i < 64; ++i)
    ASSERT_EQ(out[i], table[i % 8] + 7 + grid[i % 2][i % 3] + "text"[i % 4]) << i;
  bool found = false;
  for (const VariableInfo& variable : program_->variables()) {
    if (variable.name != "c_table") continue;
    found = true;
    EXPECT_EQ(variable.size, 32u);
    EXPECT_TRUE(variable.is_constant);
    EXPECT_EQ(*reinterpret_cast<int*>(variable.address + 28), 34);
  }
  EXPECT_TRUE(found);
}

TEST_F(Conformance, StructByValue) {
  struct Big {
    int a[5];
    double b;
    char c[3];
  } big{{1, 2, 3, 4, 5}, 0.5, {10, 20, 30}};
  double* out = Zeroes<double>(32);
  ASSERT_EQ(Run("struct_by_value", 1, 32, Params().Add(big).Add(out).Add(2)), CUDA_SUCCESS);
  for (int i = 0; i < 32; ++i) ASSERT_EQ(out[i], big.a[(i + 2) % 5] + 0.5 + big.c[i % 3]) << i;
}

TEST_F(Conformance, LocalArray) {
  std::mt19937 random(1);
  std::vector<int> in(64 * 16);
  for (int& value : in) value = static_cast<int>(random() % 1000);
  int* out = Zeroes<int>(in.size());
  ASSERT_EQ(Run("local_array", 1, 64, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (size_t i = 0; i < 64; ++i) std::sort(in.begin() + i * 16, in.begin() + i * 16 + 16);
  for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i]) << i;
}

TEST_F(Conformance, Vectors) {
  std::vector<float> in(4 * 96);
  std::iota(in.begin(), in.end(), 1.0f);
  std::vector<int16_t> shorts(2 * 96);
  std::iota(shorts.begin(), shorts.end(), int16_t{-50});
  float* out = Zeroes<float>(in.size());
  int* ints = Zeroes<int>(shorts.size());
  ASSERT_EQ(Run("vectors", 3, 32, Params().Add(Upload(in)).Add(out).Add(Upload(shorts)).Add(ints)),
            CUDA_SUCCESS);
  for (size_t i = 0; i < 96; ++i) {
    ASSERT_EQ(out[4 * i], in[4 * i + 3]);
    ASSERT_EQ(out[4 * i + 2], in[4 * i + 1] + 1);
    ASSERT_EQ(out[4 * i + 3], in[4 * i] * 2);
    ASSERT_EQ(ints[2 * i], shorts[2 * i + 1]);
  }
}

TEST_F(Conformance, SharedMemory) {
  const std::vector<int> in = Iota(256 * 5, 3);
  int* out = Zeroes<int>(5);
  ASSERT_EQ(Run("shared_tree_sum", 5, 256, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (int k = 0; k < 5; ++k)
    EXPECT_EQ(out[k], std::accumulate(in.begin() + k * 256, in.begin() + k * 256 + 256, 0));
  int* reversed = Zeroes<int>(200);
  LaunchConfig config{{1, 1, 1}, {200, 1, 1}};
  config.dynamic_shared_bytes = 800;
  ASSERT_EQ(Run("dynamic_shared_reverse", config, Params().Add(Upload(in)).Add(reversed).Add(200)),
            CUDA_SUCCESS);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(reversed[i], in[199 - i]);
  int* copied = Zeroes<int>(128);
  ASSERT_EQ(Run("async_copy", 1, 32, Params().Add(Upload(in)).Add(copied)), CUDA_SUCCESS);
  for (int i = 0; i < 128; ++i) ASSERT_EQ(copied[i], in[127 - i]);
}

TEST_F(Conformance, Shuffles) {
  const std::vector<int> in = Iota(128 * 3, 7);
  int* out = Zeroes<int>(3);
  ASSERT_EQ(Run("shuffle_sum", 3, 128, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  for (int k = 0; k < 3; ++k)
    EXPECT_EQ(out[k], std::accumulate(in.begin() + k * 128, in.begin() + k * 128 + 128, 0));
  int* modes = Zeroes<int>(96);
  double* doubles = Zeroes<double>(32);
  ASSERT_EQ(Run("shuffle_modes", 1, 32, Params().Add(modes).Add(doubles)), CUDA_SUCCESS);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(modes[i], i < 5 ? i : i - 5);
    EXPECT_EQ(modes[32 + i], i ^ 9);
    EXPECT_EQ(modes[64 + i], (i & 24) + (i + 3) % 8);
    EXPECT_EQ(doubles[i], (i + 2 > 31 ? i : i + 2) * 0.5);
  }
}

TEST_F(Conformance, VotesMatchesReductions) {
  unsigned* out = Zeroes<unsigned>(32 * 8);
  ASSERT_EQ(Run("votes", 1, 32, Params().Add(out)), CUDA_SUCCESS);
  unsigned ballot = 0, most = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if (i % 3 == 0) ballot |= 1u << i;
    most = std::max(most, i ^ 5);
  }
  for (unsigned i = 0; i < 32; ++i) {
    const unsigned* o = out + i * 8;
    unsigned match = 0;
    for (unsigned j = 0; j < 32; ++j) match |= static_cast<unsigned>(i / 5 == j / 5) << j;
    EXPECT_EQ(o[0], ballot);
    EXPECT_EQ(o[1], 1u);
    EXPECT_EQ(o[2], 0u);
    EXPECT_EQ(o[3], match);
    EXPECT_EQ(o[4], 0u);  // all lanes, plus a predicate of 1
    EXPECT_EQ(o[5], 496u);
    EXPECT_EQ(o[6], most);
    EXPECT_EQ(o[7], ~0u);
  }
}

TEST_F(Conformance, DivergentMasks) {
  int* out = Zeroes<int>(32);
  ASSERT_EQ(Run("divergent_masks", 1, 32, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 ? 256 : i < 16 ? 4 : 5) << i;
  int* early = Zeroes<int>(64);
  ASSERT_EQ(Run("early_exit", 1, 64, Params().Add(early)), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(early[i], i % 4 == 3 ? 0 : 24) << i;
}

TEST_F(Conformance, SpinLocksWithinAWarp) {
  for (const char* kernel : {"spin_lock", "naive_spin_lock"}) {
    int* words = Zeroes<int>(2);
    ASSERT_EQ(Run(kernel, 3, 64, Params().Add(words).Add(words + 1)), CUDA_SUCCESS);
    EXPECT_EQ(words[1], 192) << kernel;
  }
}

TEST_F(Conformance, ProducerAndConsumerLanes) {
  int* flags = Zeroes<int>(64);
  int* out = Zeroes<int>(64);
  ASSERT_EQ(Run("producer_consumer", 1, 64, Params().Add(flags).Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 2 ? i * 10 : i);
}

TEST_F(Conformance, Barriers) {
  int* out = Zeroes<int>(128);
  ASSERT_EQ(Run("barriers_in_both_arms", 1, 128, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 128; ++i)
    EXPECT_EQ(out[i], (i / 32) % 2 == 0 ? (i ^ 32) * 3 : (i ^ 32) * 2 + 1);
  int* reductions = Zeroes<int>(96 * 3);
  ASSERT_EQ(Run("barrier_reductions", 1, 96, Params().Add(reductions)), CUDA_SUCCESS);
  for (int i = 0; i < 96; ++i) {
    EXPECT_EQ(reductions[i * 3], 32);
    EXPECT_EQ(reductions[i * 3 + 1], 1);
    EXPECT_EQ(reductions[i * 3 + 2], 1);
  }
}

TEST_F(Conformance, CooperativeGroups) {
  std::vector<int> in(96);
  for (int i = 0; i < 96; ++i) in[i] = i % 5 ? 1 : -1;
  int* counter = Zeroes<int>(1);
  ASSERT_EQ(Run("coalesced_add", 1, 96, Params().Add(counter).Add(Upload(in))), CUDA_SUCCESS);
  EXPECT_EQ(*counter, 76);
  const std::vector<int> values = Iota(64);
  int* out = Zeroes<int>(64);
  ASSERT_EQ(Run("tiles", 1, 64, Params().Add(Upload(values)).Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], (i & ~7) * 8 + 28);
  constexpr int kCount = 24 * 64;
  int* data = Upload(Iota(kCount));
  LaunchConfig config{{24, 1, 1}, {64, 1, 1}};
  config.cooperative = true;
  ASSERT_EQ(Run("grid_sync", config, Params().Add(data).Add(kCount).Add(3)), CUDA_SUCCESS);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(data[i], (i + 3) % kCount) << i;
}

TEST_F(Conformance, Atomics32) {
  int* i32 = Upload(std::vector<int>{0, 0, 100, -100, -1, 0, 0, 5});
  unsigned* u32 = Zeroes<unsigned>(3);
  float* f32 = Zeroes<float>(1);
  ASSERT_EQ(Run("atomics32", 2, 128, Params().Add(i32).Add(u32).Add(f32)), CUDA_SUCCESS);
  int bits = 0;
  for (int i = 0; i < 128; ++i) bits ^= i;
  EXPECT_EQ(i32[0], 2 * 8128);
  EXPECT_EQ(i32[1], -2 * 8128);
  EXPECT_EQ(i32[2], -40);
  EXPECT_EQ(i32[3], 381);
  EXPECT_EQ(i32[4], 0);
  EXPECT_EQ(i32[5], -1);
  EXPECT_EQ(i32[6], bits ^ bits);
  EXPECT_EQ(i32[7], 99);
  unsigned inc = 0, dec = 0;
  for (int i = 0; i < 256; ++i) {
    inc = inc >= 9 ? 0 : inc + 1;
    dec = dec == 0 || dec > 9 ? 9 : dec - 1;
  }
  EXPECT_EQ(u32[0], inc);
  EXPECT_EQ(u32[1], dec);
  EXPECT_EQ(u32[2], 0x8000007fu);
  EXPECT_EQ(f32[0], 128.0f);
}

TEST_F(Conformance, Atomics64AndHalves) {
  auto* u64 = Zeroes<uint64_t>(4);
  double* f64 = Zeroes<double>(1);
  auto* s64 = Zeroes<int64_t>(1);
  ASSERT_EQ(Run("atomics64", 2, 128, Params().Add(u64).Add(f64).Add(s64)), CUDA_SUCCESS);
  EXPECT_EQ(u64[0], uint64_t{256} << 33);
  EXPECT_EQ(u64[1], uint64_t{1} << 63);
  EXPECT_EQ(u64[2], 0u);
  EXPECT_EQ(u64[3], 768u);
  EXPECT_EQ(f64[0], 64.0);
  EXPECT_EQ(s64[0], -(int64_t{127} << 33));
  auto* h = Zeroes<uint16_t>(2);
  auto* h2 = Zeroes<uint32_t>(1);
  auto* b = Zeroes<uint16_t>(2);
  auto* b2 = Zeroes<uint32_t>(1);
  auto* u16 = Zeroes<uint16_t>(2);
  ASSERT_EQ(Run("atomics_half", 2, 32, Params().Add(h).Add(h2).Add(b).Add(b2).Add(u16)),
            CUDA_SUCCESS);
  EXPECT_EQ(h[0], 0x5400);        // 64 in f16
  EXPECT_EQ(h2[0], 0x58005400u);  // 64, 128
  EXPECT_EQ(b[0], 0x4280);        // 64 in bf16
  EXPECT_EQ(b2[0], 0x42004280u);  // 64, 32
  EXPECT_EQ(u16[0], 64);
}

TEST_F(Conformance, Histogram) {
  std::mt19937 random(3);
  std::vector<uint8_t> in(50'000);
  std::vector<unsigned> expected(256);
  for (uint8_t& value : in) ++expected[value = static_cast<uint8_t>(random() % 97)];
  unsigned* out = Zeroes<unsigned>(256);
  ASSERT_EQ(Run("shared_histogram", 7, 256, Params().Add(Upload(in)).Add(50'000).Add(out)),
            CUDA_SUCCESS);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(out[i], expected[i]);
}

TEST_F(Conformance, Functions) {
  int* out = Zeroes<int>(64);
  ASSERT_EQ(Run("recursion", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  const std::function<int(int)> fibonacci = [&](int n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
  };
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], fibonacci(i % 12));
  ASSERT_EQ(Run("function_pointers", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 3 == 0 ? 2 * i : i % 3 == 1 ? i * i : -i);
  float* areas = Zeroes<float>(64);
  ASSERT_EQ(Run("virtual_functions", 1, 64, Params().Add(areas)), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(areas[i], static_cast<float>(i) * static_cast<float>(i) * (i % 2 ? 1.0f : 3.0f));
  double* numbers = Zeroes<double>(64);
  ASSERT_EQ(Run("struct_calls", 1, 64, Params().Add(numbers)), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) {
    double x = 1.0 + i, y = 2.0;
    int z = 3;
    if (i & 1) {
      std::swap(x, y);
      z += i;
    } else {
      x *= 2;
      z -= i;
    }
    std::swap(x, y);
    z += 1;
    EXPECT_EQ(numbers[i], x * 100 + y * 10 + z);
  }
}

TEST_F(Conformance, CallsOfWhatIsNoFunction) {
  int* out = Zeroes<int>(4);
  for (const uint64_t address : {uint64_t{0}, reinterpret_cast<uint64_t>(out),
                                 reinterpret_cast<uint64_t>(&abort), ~uint64_t{0}}) {
    EXPECT_EQ(Run("bad_function_pointer", 1, 1, Params().Add(out).Add(address)),
              CUDA_ERROR_INVALID_PC);
  }
  EXPECT_EQ(Run("wrong_signature", 1, 1, Params().Add(out)), CUDA_ERROR_INVALID_PC);
}

TEST_F(Conformance, Switches) {
  std::vector<int> in(32);
  for (int i = 0; i < 32; ++i) in[i] = i % 11;
  int* out = Zeroes<int>(32);
  ASSERT_EQ(Run("switches", 1, 32, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  const int expected[] = {100, 8, -2, 3 ^ 0x55, 64, -24, 66, 3, -1, -1, -1};
  for (int i = 0; i < 32; ++i) EXPECT_EQ(out[i], expected[i % 11]);
}

TEST_F(Conformance, EndlessRecursionOverflowsTheStack) {
  int* words = Upload(std::vector<int>{-1, 0});
  EXPECT_EQ(Run("endless_recursion", 1, 4, Params().Add(words)), CUDA_ERROR_HARDWARE_STACK_ERROR);
}

TEST_F(Conformance, Printf) {
  FlushDeviceOutput();
  testing::internal::CaptureStdout();
  ASSERT_EQ(Run("prints", 1, 2, Params().Add(255)), CUDA_SUCCESS);
  FlushDeviceOutput();
  EXPECT_EQ(testing::internal::GetCapturedStdout(),
            "block 0 thread 0 value  0.00 str q 1099511627776 ff\n"
            "block 0 thread 1 value  1.50 str q 1099511627776 ff\n");
}

TEST_F(Conformance, AssertAndTrap) {
  EXPECT_EQ(Run("asserts", 1, 32, Params().Add(32)), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Run("asserts", 1, 32, Params().Add(20)), CUDA_ERROR_ASSERT);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("thread: [20,0,0] Assertion `static_cast<int>(threadIdx.x) < n` failed."),
            std::string::npos)
      << text;
  EXPECT_EQ(Run("traps", 1, 32, Params()), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(Run("traps", 1, 2, Params()), CUDA_SUCCESS);
}

TEST_F(Conformance, HeapAndClocks) {
  int* out = Zeroes<int>(100);
  ASSERT_EQ(Run("heap", 1, 100, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(out[i], i * (i + 1) / 2);
  auto* times = Zeroes<int64_t>(2);
  ASSERT_EQ(Run("clocks", 1, 1, Params().Add(times)), CUDA_SUCCESS);
  EXPECT_GT(times[0], 0);
  EXPECT_GT(times[1], int64_t{1'600'000'000} * 1'000'000'000);
}

TEST_F(Conformance, Watchdog) {
  int* flag = Zeroes<int>(1);
  LaunchConfig config{{2, 1, 1}, {32, 1, 1}};
  config.timeout_ms = 30;
  EXPECT_EQ(Run("endless_loop", config, Params().Add(flag)), CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(Run("endless_arithmetic", config, Params().Add(flag)), CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST_F(Conformance, Faults) {
  int* out = Zeroes<int>(64);
  EXPECT_EQ(Run("out_of_bounds", 1, 32, Params().Add(out).Add(int64_t{1} << 32)),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Run("out_of_bounds", 1, 32, Params().Add(out).Add(int64_t{-1} << 40)),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Run("misaligned", 1, 32, Params().Add(out)), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(Run("shared_out_of_bounds", 1, 32, Params().Add(out).Add(1 << 20)),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Run("shared_out_of_bounds", 1, 32, Params().Add(out).Add(-100000)),
            CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Run("out_of_bounds", 1, 32, Params().Add(out).Add(int64_t{3})), CUDA_SUCCESS);
  EXPECT_EQ(std::accumulate(out, out + 64, 0), 32);
}

TEST_F(Conformance, Geometry) {
  constexpr uint32_t kBlock = 4 * 3 * 5, kGrid = 2 * 3 * 2;
  int* out = Zeroes<int>(kBlock * kGrid);
  ASSERT_EQ(Run("geometry", LaunchConfig{{2, 3, 2}, {4, 3, 5}}, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kBlock * kGrid; ++i) {
    const uint32_t t = i % kBlock, k = i / kBlock;
    const uint32_t expected = t % 4 + 10 * (t / 4 % 3) + 100 * (t / 12) + 1000 * (k % 2) +
                              10000 * (k / 2 % 3) + 100000 * (k / 6);
    ASSERT_EQ(out[i], static_cast<int>(expected)) << i;
  }
}

// Relative to the larger of |expected| and 1e-30; the CUDA C++ guide allows single functions 1 to 4
// ulp.
template <typename T>
void ExpectNear(T got, T expected, double relative, const char* what, T x) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(got)) << what << " of " << x << ": got " << got;
    return;
  }
  if (got == expected) return;
  EXPECT_LE(std::fabs(static_cast<double>(got) - static_cast<double>(expected)),
            relative * std::max(1e-30, std::fabs(static_cast<double>(expected))))
      << what << " of " << x << ": got " << got << ", expected " << expected;
}

TEST_F(Conformance, MathF32) {
  std::vector<float> in = {0,        -0.0f,     1,   -1,  0.5f, 1e-30f, 3e38f,
                           INFINITY, -INFINITY, NAN, 100, -100, 1e-42f, 12345.678f};
  for (int i = 0; i < 300; ++i) in.push_back(static_cast<float>(i - 150) * 0.137f);
  const int n = static_cast<int>(in.size());
  float* out = Zeroes<float>(in.size() * 16);
  ASSERT_EQ(Run("math_f32", (n + 63) / 64, 64, Params().Add(Upload(in)).Add(out).Add(n)),
            CUDA_SUCCESS);
  for (int i = 0; i < n; ++i) {
    const float x = in[i];
    const float* o = out + i * 16;
    const auto near = [&](int k, double expected, const char* what, double relative = 5e-7) {
      ExpectNear<float>(o[k], static_cast<float>(expected), relative, what, x);
    };
    const double d = x;
    near(0, std::sin(d), "sinf");
    near(1, std::cos(d), "cosf");
    near(2, std::tan(d), "tanf", 1e-6);
    near(3, std::exp(d), "expf");
    near(4, std::log(std::fabs(d)), "logf");
    near(5, std::sqrt(std::fabs(d)), "sqrtf", 1e-7);
    near(6, std::pow(std::fabs(d), 1.5), "powf", 1e-6);
    near(7, std::tanh(d), "tanhf");
    near(8, std::atan(d), "atanf");
    near(9, std::cbrt(d), "cbrtf");
    near(10, std::erf(d), "erff");
    near(11, std::exp2(d), "exp2f");
    near(12, 1 / std::sqrt(std::fabs(d)), "rsqrtf");
    near(13, std::fmod(x, 0.7f), "fmodf", 0);
    near(15, std::log1p(std::fabs(d)), "log1pf");
    if (std::fabs(x) < 80) near(14, std::exp(d), "__expf", 1e-5);
  }
}

TEST_F(Conformance, MathF64) {
  std::vector<double> in = {0, 1, -1, 0.5, 1e-300, 1e300, INFINITY, -INFINITY, NAN, 100, -100};
  for (int i = 0; i < 200; ++i) in.push_back((i - 100) * 0.173);
  const int n = static_cast<int>(in.size());
  double* out = Zeroes<double>(in.size() * 8);
  ASSERT_EQ(Run("math_f64", (n + 63) / 64, 64, Params().Add(Upload(in)).Add(out).Add(n)),
            CUDA_SUCCESS);
  for (int i = 0; i < n; ++i) {
    const double x = in[i];
    const double expected[] = {std::sin(x),
                               std::exp(x),
                               std::log(std::fabs(x)),
                               std::pow(std::fabs(x), 1.25),
                               std::sqrt(std::fabs(x)),
                               std::atan2(x, 2.0),
                               std::tanh(x),
                               std::fma(x, x, 1.0 / x)};
    for (int k = 0; k < 8; ++k) ExpectNear<double>(out[i * 8 + k], expected[k], 5e-16, "f64", x);
  }
}

TEST_F(Conformance, Halves) {
  std::mt19937 random(5);
  std::vector<_Float16> a(256), b(256);
  for (int i = 0; i < 256; ++i) {
    a[i] =
        static_cast<_Float16>(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 64.0f);
    b[i] = static_cast<_Float16>(static_cast<float>(static_cast<int>(random() % 4001) - 2000) /
                                 256.0f);
    if (b[i] == _Float16(0)) b[i] = _Float16(1);
  }
  auto* out = Zeroes<_Float16>(256 * 6);
  ASSERT_EQ(Run("halves", 1, 256, Params().Add(Upload(a)).Add(Upload(b)).Add(out).Add(256)),
            CUDA_SUCCESS);
  for (int i = 0; i < 256; ++i) {
    const float x = a[i], y = b[i];
    const _Float16* o = out + i * 6;
    EXPECT_EQ(o[0], static_cast<_Float16>(x + y));
    EXPECT_EQ(o[1], static_cast<_Float16>(x * y));
    EXPECT_NEAR(static_cast<float>(o[2]), x / y, std::fabs(x / y) * 0.002 + 1e-6);
    // f64 holds the exact sum here, so that one rounding follows.
    EXPECT_EQ(o[3], static_cast<_Float16>(static_cast<double>(x) * y + x));
    EXPECT_EQ(o[4], static_cast<_Float16>(std::max(x, y)));
    EXPECT_EQ(o[5], static_cast<_Float16>(std::sqrt(std::fabs(x))));
  }
}

TEST_F(Conformance, Integers64) {
  std::mt19937_64 random(9);
  std::vector<int64_t> a(128), b(128);
  for (int i = 0; i < 128; ++i) {
    a[i] = static_cast<int64_t>(random()) >> (i % 40);
    b[i] = static_cast<int64_t>(random()) >> (i % 60);
    if (b[i] == 0) b[i] = 3;
  }
  auto* out = Zeroes<int64_t>(128 * 6);
  ASSERT_EQ(Run("integers64", 1, 128, Params().Add(Upload(a)).Add(Upload(b)).Add(out)),
            CUDA_SUCCESS);
  for (int i = 0; i < 128; ++i) {
    const int64_t x = a[i], y = b[i];
    const int64_t* o = out + i * 6;
    EXPECT_EQ(o[0], x / y);
    EXPECT_EQ(o[1], x % y);
    EXPECT_EQ(o[2], static_cast<int64_t>((static_cast<__int128>(x) * y) >> 64));
    EXPECT_EQ(o[3], std::popcount(static_cast<uint64_t>(x)) +
                        std::countl_zero(static_cast<uint64_t>(y)) + __builtin_ffsll(x));
    EXPECT_EQ(static_cast<uint64_t>(o[5]), static_cast<uint64_t>(x) / static_cast<uint64_t>(y));
  }
  std::vector<uint64_t> words = {random(), random(), random(), random()};
  const auto p = (static_cast<unsigned __int128>(words[0]) << 64) | words[1];
  const auto q = (static_cast<unsigned __int128>(words[2]) << 64) | words[3];
  auto* wide = Zeroes<uint64_t>(6);
  ASSERT_EQ(Run("wide_integers", 1, 1, Params().Add(Upload(words)).Add(wide)), CUDA_SUCCESS);
  const unsigned __int128 expected[] = {p + q, p * q, p - q};
  for (int k = 0; k < 3; ++k) {
    EXPECT_EQ(wide[2 * k], static_cast<uint64_t>(expected[k] >> 64));
    EXPECT_EQ(wide[2 * k + 1], static_cast<uint64_t>(expected[k]));
  }
}

TEST_F(Conformance, Intrinsics) {
  std::mt19937 random(11);
  std::vector<uint32_t> a(64), b(64);
  for (int i = 0; i < 64; ++i) {
    a[i] = random();
    b[i] = random();
  }
  auto* out = Zeroes<uint32_t>(64 * 8);
  ASSERT_EQ(Run("intrinsics", 1, 64, Params().Add(Upload(a)).Add(Upload(b)).Add(out)),
            CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) {
    const uint32_t x = a[i], y = b[i];
    const uint32_t* o = out + i * 8;
    EXPECT_EQ(o[0],
              (x & 0xff) | (y & 0xff) << 8 | ((x >> 8) & 0xff) << 16 | ((y >> 8) & 0xff) << 24);
    EXPECT_EQ(o[1], (y << 7) | (x >> 25));
    uint32_t dot = 5, differences = 0, sums = 0;
    for (int k = 0; k < 32; k += 8) {
      const uint32_t p = (x >> k) & 0xff, q = (y >> k) & 0xff;
      dot += p * q;
      differences |= (p > q ? p - q : q - p) << k;
    }
    for (int k = 0; k < 32; k += 16)
      sums |= std::min(0xffffu, ((x >> k) & 0xffff) + ((y >> k) & 0xffff)) << k;
    EXPECT_EQ(o[2], dot);
    EXPECT_EQ(o[3], differences);
    EXPECT_EQ(o[4], sums);
    EXPECT_EQ(o[5], static_cast<uint32_t>((uint64_t{x} * y) >> 32));
    EXPECT_EQ(o[6], (x > y ? x - y : y - x) + 1);
  }
}

}  // namespace
}  // namespace smolvm::emulation
