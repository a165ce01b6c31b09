// The scheduler without a compiler: kernels are C++ functions that call the helper table as
// generated code does.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "host-daemon/emulation/device/arena.h"
#include "host-daemon/emulation/runtime/block.h"
#include "host-daemon/emulation/runtime/helpers.h"
#include "host-daemon/emulation/runtime/launch.h"
#include "tests/unit/emulation_runtime/arena_fixture.h"

namespace smolvm::emulation {
namespace {

// ThreadSanitizer takes milliseconds to begin the history of a thread, so it gets fewer of them.
#ifdef __SANITIZE_THREAD__
constexpr uint32_t kMany = 100;
constexpr uint32_t kManyBlocks = 6;
#else
constexpr uint32_t kMany = 1000;
constexpr uint32_t kManyBlocks = 40;
#endif

template <Helper kHelper, typename R, typename... Args>
R Call(ThreadContext* t, Args... args) {
  auto* function = reinterpret_cast<R (*)(ThreadContext*, Args...)>(
      t->block_context->helpers[static_cast<size_t>(kHelper)]);
  return function(t, args...);
}
void BarSync(ThreadContext* t, uint32_t id = 0, uint32_t count = 0) {
  Call<Helper::kBarSync, void>(t, id, count);
}
uint32_t Shfl(ThreadContext* t, ShuffleMode mode, uint32_t mask, uint32_t value, uint32_t b,
              uint32_t c) {
  return static_cast<uint32_t>(
      Call<Helper::kShfl, uint64_t>(t, static_cast<uint32_t>(mode), mask, value, b, c));
}

template <typename T>
T* Param(const ThreadContext* t, size_t index = 0) {
  return reinterpret_cast<T* const*>(t->block_context->params)[index];
}
uint32_t Linear(const ThreadContext* t) { return t->warp * kWarpSize + t->lane; }

class Scheduler : public testing::Test {
 protected:
  CUresult Run(KernelFunction function, uint32_t grid, uint32_t block, bool fibres = true,
               size_t shared = 0, bool cooperative = false, uint64_t timeout_ms = 0) {
    KernelCode code;
    code.name = "kernel";
    code.function = function;
    code.needs_fibres = fibres;
    code.static_shared_bytes = shared;
    LaunchConfig config{{grid, 1, 1}, {block, 1, 1}};
    config.cooperative = cooperative;
    config.timeout_ms = timeout_ms;
    return RunGrid(code, config, TestArena(), std::as_bytes(std::span(params_)));
  }
  uint32_t* Words(size_t count) {
    const uintptr_t address = TestArena().Allocate(count * 4);
    memset(reinterpret_cast<void*>(address), 0, count * 4);
    allocations_.push_back(address);
    return reinterpret_cast<uint32_t*>(address);
  }
  void TearDown() override {
    for (const uintptr_t address : allocations_) TestArena().Free(address);
  }
  std::vector<void*> params_;
  std::vector<uintptr_t> allocations_;
};

TEST_F(Scheduler, PlainKernelRunsEveryBlockOnce) {
  uint32_t* out = Words(1000);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  std::atomic_ref(Param<uint32_t>(t)[t->block_context->ctaid[0]]).fetch_add(1);
                },
                1000, 32, false),
            CUDA_SUCCESS);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(out[i], 1u) << i;
}

TEST_F(Scheduler, BarrierOrdersSharedMemory) {
  uint32_t* out = Words(3 * kMany);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  auto* shared = reinterpret_cast<uint32_t*>(t->block_context->shared_base);
                  const uint32_t i = Linear(t);
                  shared[i] = i * 7;
                  BarSync(t);
                  const uint32_t value = shared[(i + 1) % kMany];
                  BarSync(t);
                  shared[i] = value + 1;
                  BarSync(t);
                  Param<uint32_t>(t)[t->block_context->ctaid[0] * kMany + i] =
                      shared[(i + kMany - 1) % kMany];
                },
                3, kMany, true, 4000),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 3 * kMany; ++i) ASSERT_EQ(out[i], (i % kMany) * 7 + 1) << i;
}

TEST_F(Scheduler, BarrierForgetsThreadsThatEnded) {
  uint32_t* out = Words(256);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  const uint32_t i = Linear(t);
                  if (i % 3 == 0) return;
                  BarSync(t);
                  Param<uint32_t>(t)[i] = 1;
                },
                1, 256),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 256; ++i) ASSERT_EQ(out[i], i % 3 != 0) << i;
}

TEST_F(Scheduler, NamedBarriersWithCounts) {
  uint32_t* out = Words(128);
  params_ = {out};
  // Two halves synchronise among themselves, a producer half arrives for a consumer half.
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  auto* shared = reinterpret_cast<uint32_t*>(t->block_context->shared_base);
                  const uint32_t i = Linear(t);
                  if (i < 64) {
                    shared[i] = i + 100;
                    Call<Helper::kBarArrive, void>(t, 2u, 128u);
                    BarSync(t, 1, 64);
                  } else {
                    BarSync(t, 2, 128);
                    Param<uint32_t>(t)[i] = shared[i - 64];
                  }
                },
                1, 128, true, 1024),
            CUDA_SUCCESS);
  for (uint32_t i = 64; i < 128; ++i) ASSERT_EQ(out[i], i + 36) << i;
}

TEST_F(Scheduler, PartialWarpCountsAsWhole) {
  uint32_t* out = Words(48);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  BarSync(t, 1, 64);
                  Param<uint32_t>(t)[Linear(t)] = 1;
                },
                1, 48),
            CUDA_SUCCESS);
  EXPECT_EQ(std::accumulate(out, out + 48, 0u), 48u);
}

TEST_F(Scheduler, BarrierReductions) {
  uint32_t* out = Words(3 * 96);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  const uint32_t i = Linear(t);
                  for (uint32_t op = 0; op < 3; ++op) {
                    Param<uint32_t>(t)[op * 96 + i] =
                        Call<Helper::kBarRed, uint32_t>(t, 0u, 0u, op, uint32_t{i % 3 == 0});
                  }
                },
                1, 96),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 96; ++i) {
    ASSERT_EQ(out[i], 32u);
    ASSERT_EQ(out[96 + i], 0u);
    ASSERT_EQ(out[192 + i], 1u);
  }
}

TEST_F(Scheduler, ShuffleModesMatchTheIsa) {
  uint32_t* out = Words(4 * 32);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  const uint32_t i = Linear(t);
                  uint32_t* o = Param<uint32_t>(t);
                  o[i] = Shfl(t, ShuffleMode::kUp, ~0u, i, 3, 0);
                  o[32 + i] = Shfl(t, ShuffleMode::kDown, ~0u, i, 3, 31);
                  o[64 + i] = Shfl(t, ShuffleMode::kBfly, ~0u, i, 5, 31);
                  o[96 + i] =
                      Shfl(t, ShuffleMode::kIdx, ~0u, i, 2, (24u << 8) | 31);  // segments of 8
                },
                1, 32),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], i < 3 ? i : i - 3);
    EXPECT_EQ(out[32 + i], i + 3 > 31 ? i : i + 3);
    EXPECT_EQ(out[64 + i], i ^ 5);
    EXPECT_EQ(out[96 + i], (i & 24) + 2);
  }
}

TEST_F(Scheduler, DisjointMasksMeetIndependently) {
  uint32_t* out = Words(32);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  const uint32_t i = Linear(t);
                  const uint32_t mask = i % 2 ? 0xaaaaaaaa : 0x55555555;
                  uint32_t sum = i;
                  for (uint32_t k = 2; k < 32; k *= 2)
                    sum += Shfl(t, ShuffleMode::kBfly, mask, sum, k, 31);
                  Param<uint32_t>(t)[i] = sum;
                },
                1, 32),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 ? 256u : 240u);
}

TEST_F(Scheduler, ExitedLanesAreNotWaitedFor) {
  uint32_t* out = Words(32);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  if (t->lane >= 20) return;
                  Param<uint32_t>(t)[t->lane] = Call<Helper::kVote, uint32_t>(t, 3u, ~0u, 1u);
                },
                1, 32),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 20; ++i) EXPECT_EQ(out[i], 0xfffffu);
}

// What warps read before a wait, warp 0 may overwrite behind it.
TEST_F(Scheduler, WarpsTakeTurnsOneWaitEach) {
  for (const uint32_t warps : {1u, 2u, 3u, 4u, 8u, 32u}) {
    const uint32_t threads = std::min(32 * warps, kMany / 32 * 32);
    uint32_t* out = Words(threads);
    params_ = {out};
    ASSERT_EQ(Run(
                  [](ThreadContext* t) {
                    auto* word =
                        reinterpret_cast<volatile uint32_t*>(t->block_context->shared_base);
                    if (Linear(t) == 0) *word = 0;
                    BarSync(t);
                    for (uint32_t round = 0; round < 10; ++round) {
                      const uint32_t seen = *word;
                      Shfl(t, ShuffleMode::kBfly, ~0u, 0, 1, 31);
                      if (Linear(t) == 0) *word = seen + 1;
                      Call<Helper::kVote, uint32_t>(t, 3u, ~0u, 1u);
                      Param<uint32_t>(t)[Linear(t)] += seen == round;
                    }
                  },
                  1, threads, true, 4),
              CUDA_SUCCESS);
    for (uint32_t i = 0; i < threads; ++i) ASSERT_EQ(out[i], 10u) << warps << " warps, " << i;
  }
}

// A lane that spins runs again although another never waits for it: the other's loop has no yield.
TEST_F(Scheduler, SpinnersRunBesideWarpsThatDoNotStop) {
  uint32_t* out = Words(2);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  std::atomic_ref request(Param<uint32_t>(t)[0]), reply(Param<uint32_t>(t)[1]);
                  if (t->warp == 0) {
                    request.store(1);
                    for (int i = 0; i < 1000 && reply.load() == 0; ++i)
                      Shfl(t, ShuffleMode::kBfly, ~0u, 0, 1, 31);
                    if (reply.load() == 1 && t->lane == 0) reply.store(2);
                  } else if (t->lane == 0) {
                    while (request.load() == 0) Call<Helper::kYield, void>(t);
                    Call<Helper::kYield, void>(t);
                    reply.store(1);
                  }
                },
                1, 64),
            CUDA_SUCCESS);
  EXPECT_EQ(out[1], 2u);
}

TEST_F(Scheduler, ActiveMaskGathersWhoIsThere) {
  uint32_t* out = Words(64);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  const uint32_t i = Linear(t);
                  Param<uint32_t>(t)[i] = i % 4 == 0 ? Call<Helper::kActiveMask, uint32_t>(t, 1u)
                                                     : Call<Helper::kActiveMask, uint32_t>(t, 2u);
                },
                1, 64),
            CUDA_SUCCESS);
  for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i % 4 == 0 ? 0x11111111u : 0xeeeeeeeeu);
}

TEST_F(Scheduler, SpinLockWithinAWarpTerminates) {
  uint32_t* out = Words(2);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  uint32_t* o = Param<uint32_t>(t);
                  std::atomic_ref lock(o[0]);
                  uint32_t expected = 0;
                  while (!lock.compare_exchange_strong(expected, 1)) {
                    expected = 0;
                    Call<Helper::kYield, void>(t);
                  }
                  const uint32_t value = o[1];
                  Call<Helper::kYield, void>(t);
                  o[1] = value + 1;
                  lock.store(0);
                },
                4, 64),
            CUDA_SUCCESS);
  EXPECT_EQ(out[1], 256u);
}

// Every block waits for every other one: all must be resident.
TEST_F(Scheduler, CooperativeGridSynchronises) {
  uint32_t* out = Words(2);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  std::atomic_ref count(*Param<uint32_t>(t));
                  for (uint32_t round = 1; round <= 5; ++round) {
                    BarSync(t);
                    if (Linear(t) == 0) {
                      count.fetch_add(1);
                      while (count.load() < round * kManyBlocks) Call<Helper::kYield, void>(t);
                    }
                    BarSync(t);
                  }
                },
                kManyBlocks, 64, true, 0, true),
            CUDA_SUCCESS);
  EXPECT_EQ(out[0], 5 * kManyBlocks);
}

TEST_F(Scheduler, BlocksThatWaitForLaterOnesMakeRoom) {
  uint32_t* out = Words(1);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  std::atomic_ref count(*Param<uint32_t>(t));
                  count.fetch_add(1);
                  while (count.load() < 16) Call<Helper::kYield, void>(t);
                },
                16, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(out[0], 16u);
}

TEST_F(Scheduler, DeadlockIsReported) {
  EXPECT_EQ(Run([](ThreadContext* t) { BarSync(t, t->lane == 0 ? 1 : 2); }, 1, 64),
            CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(Scheduler, TouchingAnUnownedPageEndsOnlyTheLaunch) {
  params_ = {reinterpret_cast<void*>(kArenaBase + TestArena().device_bytes() - 64)};
  // A word for each block: blocks run side by side.
  const auto write = [](ThreadContext* t) {
    Param<volatile uint32_t>(t)[t->block_context->ctaid[0]] = 1;
  };
  const auto touch = [](ThreadContext* t) {
    if (Linear(t) == 37) Param<volatile uint32_t>(t)[t->block_context->ctaid[0]] = 1;
    if (t->block != nullptr) BarSync(t);
  };
  EXPECT_EQ(Run(touch, 4, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(Run(write, 4, 64, false), CUDA_ERROR_ILLEGAL_ADDRESS);
  uint32_t* out = Words(1);
  params_ = {out};
  EXPECT_EQ(Run([](ThreadContext* t) { std::atomic_ref(*Param<uint32_t>(t)).fetch_add(1); }, 4, 64),
            CUDA_SUCCESS);
  EXPECT_EQ(out[0], 256u);
}

TEST_F(Scheduler, ReportedFaultsHaveTheirResults) {
  const auto raise = [](FaultKind kind) {
    static FaultKind wanted;
    wanted = kind;
    return [](ThreadContext* t) {
      if (t->block_context->ctaid[0] == 3) {
        Call<Helper::kFault, void>(t, static_cast<uint32_t>(wanted), uint64_t{0x1234});
      }
    };
  };
  EXPECT_EQ(Run(raise(FaultKind::kMisaligned), 8, 32), CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(Run(raise(FaultKind::kTrap), 8, 32), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(Run(raise(FaultKind::kAssert), 8, 32, false), CUDA_ERROR_ASSERT);
  EXPECT_EQ(Run(raise(FaultKind::kIllegalCall), 8, 32, false), CUDA_ERROR_INVALID_PC);
}

// A fault leaves functions without a return, and other threads of the block where they wait. The
// stacks serve again (what a sanitizer noted about them must not).
__attribute__((noinline)) uint32_t FailDeepInside(ThreadContext* t, uint32_t depth, bool fails) {
  volatile char text[64] = {};
  char* const end = const_cast<char*>(text) + sizeof text;
  memset(const_cast<char*>(text), static_cast<int>(depth), sizeof text);
  if (depth > 0) return FailDeepInside(t, depth - 1, fails) + static_cast<uint32_t>(end[-1]);
  if (fails) Call<Helper::kFault, void>(t, static_cast<uint32_t>(FaultKind::kTrap), uint64_t{0});
  if (t->block != nullptr) BarSync(t);
  return 0;
}

TEST_F(Scheduler, StacksLeftByFaultsServeAgain) {
  uint32_t* out = Words(1);
  params_ = {out};
  for (const bool fibres : {true, false}) {
    for (int round = 0; round < 3; ++round) {
      const auto fails = [](ThreadContext* t) { FailDeepInside(t, t->lane % 7, t->lane == 20); };
      EXPECT_EQ(Run(fails, 4, 32, fibres), fibres ? CUDA_ERROR_LAUNCH_FAILED : CUDA_SUCCESS);
      const auto fails_at_once = [](ThreadContext* t) { FailDeepInside(t, 5, true); };
      EXPECT_EQ(Run(fails_at_once, 4, 32, fibres), CUDA_ERROR_LAUNCH_FAILED);
      const auto works = [](ThreadContext* t) {
        const uint32_t sum = FailDeepInside(t, 3 + t->lane % 5, false);
        std::atomic_ref(*Param<uint32_t>(t)).fetch_add(sum);
      };
      EXPECT_EQ(Run(works, 4, 32, fibres), CUDA_SUCCESS);
    }
  }
  // Sums of 1 to 3, …, 1 to 7 in turn by lane; without fibres a block is one call.
  uint32_t of_block = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint32_t depth = 3 + lane % 5;
    of_block += depth * (depth + 1) / 2;
  }
  EXPECT_EQ(out[0], 3 * 4 * (of_block + 6));
}

__attribute__((noinline)) uint32_t Recurse(volatile uint32_t* depth) {
  volatile char frame[512];
  frame[0] = static_cast<char>(*depth);
  if (*depth == 1) return 0;  // never: it stays 0
  return Recurse(depth) + static_cast<uint32_t>(frame[0]);
}

TEST_F(Scheduler, StackOverflowEndsTheLaunch) {
  uint32_t* out = Words(1);
  params_ = {out};
  const auto overflow = [](ThreadContext* t) {
    *Param<volatile uint32_t>(t) = Recurse(Param<volatile uint32_t>(t));
  };
  EXPECT_EQ(Run(overflow, 2, 32), CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(Run(overflow, 2, 32, false), CUDA_ERROR_HARDWARE_STACK_ERROR);
}

TEST_F(Scheduler, WatchdogEndsLoopsThatYield) {
  uint32_t* out = Words(1);
  params_ = {out};
  EXPECT_EQ(Run(
                [](ThreadContext* t) {
                  while (std::atomic_ref(*Param<uint32_t>(t)).load() == 0)
                    Call<Helper::kYield, void>(t);
                },
                2, 32, true, 0, false, 20),
            CUDA_ERROR_LAUNCH_TIMEOUT);
}

TEST_F(Scheduler, LaunchLimits) {
  const auto nothing = [](ThreadContext*) {};
  EXPECT_EQ(Run(nothing, 1, 1025), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Run(nothing, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Run(nothing, 1, 0), CUDA_ERROR_INVALID_VALUE);
  if (kMany < 1000) return;
  EXPECT_EQ(Run(nothing, 1, 1024), CUDA_SUCCESS);
}

TEST_F(Scheduler, KernelHeap) {
  uint32_t* out = Words(64);
  params_ = {out};
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  const uint32_t i = Linear(t);
                  const auto address = Call<Helper::kMalloc, uint64_t>(t, uint64_t{100});
                  auto* block = reinterpret_cast<uint32_t*>(address);
                  for (int k = 0; k < 25; ++k) block[k] = i;
                  BarSync(t);
                  uint32_t same = 0;
                  for (int k = 0; k < 25; ++k) same += block[k] == i;
                  Param<uint32_t>(t)[i] = same;
                  Call<Helper::kFree, void>(t, address);
                },
                1, 64),
            CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], 25u);
  ASSERT_EQ(Run(
                [](ThreadContext* t) {
                  *Param<uint32_t>(t) = Call<Helper::kMalloc, uint64_t>(t, uint64_t{1} << 40) == 0;
                },
                1, 1),
            CUDA_SUCCESS);
  EXPECT_EQ(out[0], 1u);
  EXPECT_EQ(Run([](ThreadContext* t) { Call<Helper::kFree, void>(t, uint64_t{12345}); }, 1, 1),
            CUDA_ERROR_ILLEGAL_ADDRESS);
}

}  // namespace
}  // namespace smolvm::emulation
