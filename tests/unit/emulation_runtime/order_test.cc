// Programs that lean on the order in which a GPU runs the warps of a block:
// tests/conformance/kernels/order.cu. What a GPU gives is said beside each kernel there.
#include <algorithm>
#include <numeric>

#include "tests/unit/emulation_runtime/cuda_source.h"
#include "tests/unit/emulation_runtime/program_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr uint32_t kWarpCounts[] = {1, 2, 3, 4, 5, 8, 16, 31, 32};

class Order : public ProgramTest {
 protected:
  void SetUp() override {
    static const CompiledCuda source = CompileCuda("order.cu");
    if (source.ptx.empty()) {
      ASSERT_FALSE(source.failed) << source.problem;
      GTEST_SKIP() << source.problem;
    }
    ASSERT_EQ(Load(source.ptx), "");
  }
  // A kernel that hangs ends with the time limit.
  CUresult RunWarps(const std::string& kernel, uint32_t warps, const Params& params,
                    uint64_t timeout_ms = 20'000) {
    LaunchConfig config{{1, 1, 1}, {32 * warps, 1, 1}};
    config.timeout_ms = timeout_ms;
    return Run(kernel, config, params);
  }
  int* Filled(size_t count, int value) { return Upload(std::vector<int>(count, value)); }
};

class Overwrites : public Order, public testing::WithParamInterface<const char*> {};

// More rounds than a loop has before it yields.
TEST_P(Overwrites, ByThreadZeroComeBehindTheReadsOfAllWarps) {
  constexpr int kRounds = 50;
  const std::string kernel = std::string("overwrite_") + GetParam();
  for (const uint32_t warps : kWarpCounts) {
    const uint32_t threads = 32 * warps;
    int* out = Filled(size_t{kRounds} * threads, -1);
    ASSERT_EQ(RunWarps(kernel, warps, Params().Add(out).Add(kRounds)), CUDA_SUCCESS);
    for (int round = 0; round < kRounds; ++round) {
      for (uint32_t i = 0; i < threads; ++i) {
        const bool has_exited = kernel == "overwrite_with_exits" && i / 32 % 2 == 1;
        ASSERT_EQ(out[round * static_cast<int>(threads) + static_cast<int>(i)],
                  has_exited ? -1 : round)
            << warps << " warps, round " << round << ", thread " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Overwrites,
                         testing::Values("block", "syncwarp", "shuffle", "ballot", "any", "all",
                                         "match", "match_all", "redux", "activemask", "tile16",
                                         "tile4", "pairs", "mixed", "in_call", "with_exits"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(Order, SharedWordsOfReductionsServeTwice) {
  for (const uint32_t warps : kWarpCounts) {
    std::vector<int> in(size_t{32} * warps);
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i * 2654435761u >> 8) % 100;
    int* out = Filled(in.size(), -1);
    ASSERT_EQ(RunWarps("reduce_twice", warps, Params().Add(Upload(in)).Add(out)), CUDA_SUCCESS);
    const int largest = *std::ranges::max_element(in);
    const int sum =
        std::accumulate(in.begin(), in.end(), 0) - largest * static_cast<int>(in.size());
    for (size_t i = 0; i < in.size(); ++i)
      ASSERT_EQ(out[i], (in[i] - largest) * sum) << warps << " warps, thread " << i;
  }
}

TEST_F(Order, WarpsMayTakeDifferentNumbersOfWaits) {
  int* out = Filled(1024, -1);
  ASSERT_EQ(RunWarps("uneven_waits", 32, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 1024; ++i) ASSERT_EQ(out[i], 32 * (i / 32 + 1)) << i;
}

TEST_F(Order, WarpsThatSpinGetTheirTurns) {
  for (const uint32_t warps : kWarpCounts) {
    int* out = Filled(warps, -1);
    ASSERT_EQ(RunWarps("reversed_by_atomics", warps, Params().Add(out)), CUDA_SUCCESS);
    for (uint32_t i = 0; i < warps; ++i) ASSERT_EQ(out[i], static_cast<int>(warps - 1 - i)) << i;
  }
  int* out = Filled(32, -1);
  ASSERT_EQ(RunWarps("waits_for_a_spinner", 2, Params().Add(out)), CUDA_SUCCESS);
  EXPECT_EQ(std::vector<int>(out, out + 32), std::vector<int>(32, 7));
}

TEST_F(Order, ABarrierUsedAgainLeavesTheResultsOfItsLastUse) {
  int* out = Filled(128, -1);
  ASSERT_EQ(RunWarps("barrier_used_again", 4, Params().Add(out)), CUDA_SUCCESS);
  for (int i = 0; i < 128; ++i) ASSERT_EQ(out[i], i < 32 || i >= 96 ? 64 : 2) << i;
}

TEST_F(Order, TheTimeLimitEndsTurnsForEver) {
  int* word = Filled(1, 0);
  for (const char* kernel : {"waits_for_ever", "spins_beside_waits_for_ever"}) {
    EXPECT_EQ(RunWarps(kernel, 4, Params().Add(word), 50), CUDA_ERROR_LAUNCH_TIMEOUT) << kernel;
  }
}

}  // namespace
}  // namespace smolvm::emulation
