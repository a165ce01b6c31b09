// What kernels compute, feature by feature, against the same in C++.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr uint32_t kBlocks = 3, kThreads = 96;
constexpr uint32_t kAll = kBlocks * kThreads;

// Where there is an assembler: are these programs PTX to NVIDIA as well?
TEST(Features, TheAssemblerTakesThem) {
  const std::string ptxas = SMOLVM_PTXAS;
  if (!std::filesystem::exists(ptxas))
    GTEST_SKIP() << "no ptxas here: the programs' PTX is NOT checked";
  for (const auto& entry : std::filesystem::directory_iterator(SMOLVM_PTX_KERNELS)) {
    const std::string command =
        "'" + ptxas + "' -arch=sm_90 -o /dev/null '" + entry.path().string() + "'";
    EXPECT_EQ(std::system(command.c_str()), 0) << entry.path();
  }
}

TEST_F(FeatureTest, Atomics32) {
  LoadFile("atomics32.ptx");
  uint32_t* out = Zeroes<uint32_t>(16);
  out[3] = out[5] = 0xffffffff;
  ASSERT_EQ(Run("atomics32", kBlocks, kThreads, Params().Add(out)), CUDA_SUCCESS);
  uint32_t xors = 0, inc = 0, dec = 0;
  for (uint32_t i = 0; i < kAll; ++i) {
    xors ^= i;
    inc = inc >= 99 ? 0 : inc + 1;
    dec = dec == 0 || dec > 99 ? 99 : dec - 1;
  }
  const uint32_t sum = kAll * (kAll - 1) / 2;
  EXPECT_EQ(out[0], sum);
  EXPECT_EQ(static_cast<int>(out[1]), -100);
  EXPECT_EQ(static_cast<int>(out[2]), static_cast<int>(kAll) - 101);
  EXPECT_EQ(out[3], 0u);           // -100 … of which 0 is the least without sign
  EXPECT_EQ(out[4], 0xffffffffu);  // … and -1 the greatest
  EXPECT_EQ(out[5], 0xffffff00u);
  EXPECT_EQ(out[6], 0xffu);
  EXPECT_EQ(out[7], xors);
  EXPECT_EQ(out[8], inc);
  EXPECT_EQ(out[9], dec);
  EXPECT_EQ(out[10], sum - 100 * kAll);
  EXPECT_EQ(out[11], 3 * kAll);
  EXPECT_EQ(out[12] + out[13], sum);  // nothing was lost in the exchange
  EXPECT_EQ(out[14], kAll);
  EXPECT_EQ(out[15], kAll - 1);
}

TEST_F(FeatureTest, Atomics64AndCas16) {
  LoadFile("atomics64.ptx");
  uint64_t* out = Zeroes<uint64_t>(12);
  out[3] = out[5] = ~uint64_t{0};
  ASSERT_EQ(Run("atomics64", 1, kThreads, Params().Add(out)), CUDA_SUCCESS);
  constexpr uint64_t kUnit = 0x100000001, kBias = 0x3000000000;
  uint64_t sum = 0, xors = 0, least = ~uint64_t{0}, most = 0;
  int64_t low = 0, high = 0;
  for (uint64_t i = 0; i < kThreads; ++i) {
    const uint64_t biased = i * kUnit - kBias;
    sum += i * kUnit;
    xors ^= i * kUnit;
    least = std::min(least, biased);
    most = std::max(most, biased);
    low = std::min(low, static_cast<int64_t>(biased));
    high = std::max(high, static_cast<int64_t>(biased));
  }
  EXPECT_EQ(out[0], sum);
  EXPECT_EQ(static_cast<int64_t>(out[1]), low);
  EXPECT_EQ(static_cast<int64_t>(out[2]), high);
  EXPECT_EQ(out[3], least);
  EXPECT_EQ(out[4], most);
  EXPECT_EQ(out[5], 0u);
  EXPECT_EQ(out[6], ~uint64_t{0});
  EXPECT_EQ(out[7], xors);
  EXPECT_EQ(out[8], sum);
  EXPECT_EQ(out[9] + out[10], sum);
  EXPECT_EQ(out[11], uint64_t{5 * kThreads} << 16);  // the 16 bits beside it are untouched
}

TEST_F(FeatureTest, AtomicAdditionsOfFloats) {
  LoadFile("atomics_float.ptx");
  auto* out = Zeroes<std::byte>(32);
  ASSERT_EQ(Run("atomics_float", 2, 64, Params().Add(out)), CUDA_SUCCESS);
  constexpr int kCount = 128;
  const auto at = [&]<typename T>(size_t offset, T) {
    T value;
    memcpy(&value, out + offset, sizeof value);
    return value;
  };
  EXPECT_EQ(at(0, float{}), 0.5f * kCount);
  EXPECT_EQ(at(8, double{}), 1.5 * kCount);
  EXPECT_EQ(at(16, uint16_t{}), 0x5800);       // 128 as f16
  EXPECT_EQ(at(20, uint32_t{}), 0x58005C00u);  // {256, 128}
  EXPECT_EQ(at(24, uint16_t{}), 0x4300);       // 128 as bf16
  EXPECT_EQ(at(28, uint32_t{}), 0x43004380u);  // {256, 128}
}

TEST_F(FeatureTest, VectorLoadsAndStores) {
  LoadFile("vectors.ptx");
  std::vector<uint32_t> in(12);
  in[0] = 0x04030201;
  in[1] = 0x8001'7fff;
  for (uint32_t i = 4; i < 12; ++i) in[i] = 0x11111111 * (i - 3);
  uint32_t* out = Zeroes<uint32_t>(13);
  ASSERT_EQ(Run("vectors", 1, 1, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
  const std::vector<uint32_t> want = {
      0x01020304, 0x7fff'8001, 0x7fff, 0xffff8001,  // reversed; sign-extended
      in[5],      in[6],       in[7],  in[4],       // rotated in shared memory
      in[9],      in[10],      in[11], in[8],       // … and in local, by halves
      0x03040102};
  EXPECT_EQ(std::vector<uint32_t>(out, out + 13), want);
}

TEST_F(FeatureTest, VolatileAndFences) {
  LoadFile("fences.ptx");
  uint32_t* mail = Zeroes<uint32_t>(2);
  uint32_t* out = Zeroes<uint32_t>(64);
  ASSERT_EQ(Run("fences", 2, 1, Params().Add(mail).Add(out)), CUDA_SUCCESS);
  uint32_t message = 0;
  for (int turn = 0; turn < 64; ++turn, message = message * 3 + 1)
    ASSERT_EQ(out[turn], message) << turn;
}

// More of it, compiled by nvcc, in emulation_order_test.
TEST_F(FeatureTest, WarpsTakeTurns) {
  LoadFile("turns.ptx");
  constexpr uint32_t kRounds = 20;
  for (const uint32_t warps : {1u, 2u, 3u, 4u, 8u, 32u}) {
    const uint32_t threads = 32 * warps;
    uint32_t* out = Zeroes<uint32_t>(kRounds * threads);
    ASSERT_EQ(Run("turns", 1, threads, Params().Add(out).Add(kRounds)), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kRounds * threads; ++i)
      ASSERT_EQ(out[i], i / threads) << warps << " warps, thread " << i % threads;
  }
}

TEST_F(FeatureTest, Alloca) {
  LoadFile("alloca.ptx");
  uint32_t* out = Zeroes<uint32_t>(kThreads);
  ASSERT_EQ(Run("dynamic_stack", {{1, 1, 1}, {kThreads, 1, 1}}, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) ASSERT_EQ(out[i], i * i) << i;
}

TEST_F(FeatureTest, FunctionPointers) {
  LoadFile("function_pointers.ptx");
  uint32_t* out = Zeroes<uint32_t>(64);
  ASSERT_EQ(Run("function_pointers", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 64; ++i) {
    const uint32_t want = i % 3 == 0 || i == 5 ? i + 10 : i % 3 == 1 ? i * 10 : i - 10;
    ASSERT_EQ(out[i], want) << i;
  }
}

TEST_F(FeatureTest, Recursion) {
  LoadFile("recursion.ptx");
  uint32_t* out = Zeroes<uint32_t>(16);
  ASSERT_EQ(Run("recursion", 1, 16, Params().Add(out)), CUDA_SUCCESS);
  uint32_t a = 0, b = 1;
  for (int i = 0; i < 16; ++i) {
    ASSERT_EQ(out[i], a) << i;
    a = std::exchange(b, a + b);
  }
}

TEST_F(FeatureTest, BarrierReductions) {
  LoadFile("barriers.ptx");
  uint32_t* out = Zeroes<uint32_t>(kThreads);
  ASSERT_EQ(Run("barrier_reductions", 1, kThreads, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kThreads; ++i) ASSERT_EQ(out[i], kThreads / 2 | 0x10000 | 0x20000) << i;
  ASSERT_EQ(Run("barrier_reductions", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 64; ++i) ASSERT_EQ(out[i], 32u | 0x10000) << i;  // none is thread 77
}

TEST_F(FeatureTest, BarrierArrive) {
  LoadFile("barriers.ptx");
  uint32_t* out = Zeroes<uint32_t>(32);
  ASSERT_EQ(Run("producer_consumer", 1, 64, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(out[i], 4500 + 10 * i) << i;
}

TEST_F(FeatureTest, WarpOperations) {
  LoadFile("warp.ptx");
  uint32_t* out = Zeroes<uint32_t>(320);
  ASSERT_EQ(Run("warp", 1, 32, Params().Add(out)), CUDA_SUCCESS);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t* row = out + lane * 10;
    EXPECT_EQ(row[0], 0x11111111u << (lane & 3)) << lane;
    EXPECT_EQ(row[1], 0xffffffffu) << lane;
    EXPECT_EQ(row[2], 496u) << lane;
    EXPECT_EQ(row[3], 0u) << lane;
    EXPECT_EQ(row[5], 0xffffffffu) << lane;
    EXPECT_EQ(row[6], lane < 16 ? 0u : 31u) << lane;
    EXPECT_EQ(row[7], lane < 16 ? (lane < 3 ? lane : lane - 3) : 20u) << lane;
    EXPECT_EQ(row[8], 0xffffu) << lane;
    EXPECT_EQ(row[9], (1u << lane) - 1) << lane;
  }
  // One of lanes 8 to 31 was elected, and they all know which.
  const uint32_t leader = out[8 * 10 + 4] & 0xff;
  EXPECT_TRUE(leader >= 8 && leader < 32);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t want = lane < 8 ? 0 : leader | (lane == leader ? 0x100 : 0);
    EXPECT_EQ(out[lane * 10 + 4], want) << lane;
  }
}

TEST_F(FeatureTest, SpinLockWithinAWarp) {
  LoadFile("spin_lock.ptx");
  uint32_t* lock = Zeroes<uint32_t>(1);
  uint32_t* count = Zeroes<uint32_t>(1);
  ASSERT_EQ(Run("spin_lock", 2, 64, Params().Add(lock).Add(count)), CUDA_SUCCESS);
  EXPECT_EQ(*count, 3u * 128);
  EXPECT_EQ(*lock, 0u);
}

TEST_F(FeatureTest, CooperativeGridSync) {
  LoadFile("grid_sync.ptx");
  constexpr uint32_t kGrid = 7;
  uint32_t* arrived = Zeroes<uint32_t>(1);
  std::vector<uint32_t> want(kGrid);
  std::iota(want.begin(), want.end(), 100u);
  uint32_t* values = Upload(want);
  LaunchConfig config{{kGrid, 1, 1}, {64, 1, 1}};
  config.cooperative = true;
  ASSERT_EQ(Run("grid_sync", config, Params().Add(arrived).Add(values)), CUDA_SUCCESS);
  for (int round = 0; round < 3; ++round) {
    const std::vector<uint32_t> before = want;
    for (uint32_t block = 0; block < kGrid; ++block)
      want[block] = before[(block + 1) % kGrid] + block;
  }
  EXPECT_EQ(std::vector<uint32_t>(values, values + kGrid), want);
}

TEST_F(FeatureTest, Heap) {
  LoadFile("builtins.ptx");
  uint32_t* out = Zeroes<uint32_t>(kThreads);
  for (int again = 0; again < 3; ++again) {
    ASSERT_EQ(Run("allocates", 1, kThreads, Params().Add(out)), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kThreads; ++i) ASSERT_EQ(out[i], 64 * i) << i;
  }
}

TEST_F(FeatureTest, Clocks) {
  LoadFile("builtins.ptx");
  uint64_t* out = Zeroes<uint64_t>(4);
  ASSERT_EQ(Run("clocks", 1, 1, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_GT(out[0], 0u);
  // Nanoseconds; how long nanosleep sleeps is between nothing and twice what was asked (PTX ISA
  // 9.7.15.3).
  EXPECT_GT(out[1], 0u);
  EXPECT_GT(out[2], out[1]);
  EXPECT_LT(out[2] - out[1], uint64_t{60} * 1'000'000'000);
}

TEST_F(FeatureTest, DependentLaunchesKeepTheirOrder) {
  LoadFile("faults.ptx");
  uint32_t* out = Zeroes<uint32_t>(1);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Run("dependent", 2, 32, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_EQ(*out, 3u * 64);
}

}  // namespace
}  // namespace smolvm::emulation
