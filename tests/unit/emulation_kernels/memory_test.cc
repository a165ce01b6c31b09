// What running kernels take of the host's memory.
#include <atomic>
#include <thread>

#include "host-daemon/emulation/device/kernel_memory.h"
#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

constexpr const char* kHeader = ".version 8.0\n.target sm_90\n.address_size 64\n";

class KernelMemoryTest : public FeatureTest {
 protected:
  void SetUp() override { before_ = KernelMemory::Get().used(); }
  void TearDown() override {
    KernelMemory::Get().SetLimit(0);
    FeatureTest::TearDown();
  }
  // Beyond what earlier tests have left in place.
  void Limit(uint64_t bytes) { KernelMemory::Get().SetLimit(before_ + bytes); }

  uint64_t before_ = 0;
};

// Each thread touches 480 KiB, and each block then waits for the last: an attack's. So many as fit
// wait; the others wait for them.
std::string Bomb(bool waits) {
  return std::string(kHeader) +
         ".visible .entry k(.param .u64 out, .param .u32 count)\n"
         "{\n.local .align 16 .b8 a[491520];\n.reg .pred %p;\n.reg .b32 %r<8>;\n.reg .b64 %d<4>;\n"
         "ld.param.u64 %d1, [out];\nld.param.u32 %r6, [count];\nmov.u32 %r1, 0;\n"
         "L: mov.u32 %r2, a;\nadd.u32 %r2, %r2, %r1;\nst.local.u32 [%r2], 1;\n"
         "add.u32 %r1, %r1, 4096;\nsetp.lt.u32 %p, %r1, 491520;\n@%p bra L;\n"
         "bar.sync 0;\natom.global.add.u32 %r5, [%d1], 1;\n" +
         (waits ? "W: ld.volatile.global.u32 %r3, [%d1];\nsetp.lt.u32 %p, %r3, %r6;\n@%p bra W;\n"
                : "") +
         "ret;\n}\n";
}

TEST_F(KernelMemoryTest, BlocksWaitForRoom) {
  ASSERT_EQ(Load(Bomb(false)), "");
  Limit(160 << 20);
  uint32_t* out = Zeroes<uint32_t>(1);
  EXPECT_EQ(Run("k", 40, 64, Params().Add(out).Add(uint32_t{0})), CUDA_SUCCESS);
  EXPECT_EQ(*out, 40u * 64);
  EXPECT_LE(KernelMemory::Get().used(), before_ + (16 << 20));  // and it was given back
}

// Threads find in their windows what they wrote, wherever those are after others had the memory.
TEST_F(KernelMemoryTest, WindowsAreTheBlocksOwnWhoeverHadThemBefore) {
  ASSERT_EQ(Load(std::string(kHeader) +
                 ".visible .entry k(.param .u64 out)\n"
                 "{\n.local .align 16 .b8 a[131072];\n.reg .pred %p;\n.reg .b32 %r<10>;\n"
                 ".reg .b64 %d<4>;\nld.param.u64 %d1, [out];\nmov.u32 %r7, %ctaid.x;\n"
                 "mov.u32 %r8, %tid.x;\nmad.lo.u32 %r7, %r7, 1024, %r8;\nmov.u32 %r1, 0;\n"
                 "L: mov.u32 %r2, a;\nadd.u32 %r2, %r2, %r1;\nadd.u32 %r3, %r1, %r7;\n"
                 "st.local.u32 [%r2], %r3;\nadd.u32 %r1, %r1, 1024;\n"
                 "setp.lt.u32 %p, %r1, 131072;\n@%p bra L;\nbar.sync 0;\nmov.u32 %r1, 0;\n"
                 "M: mov.u32 %r2, a;\nadd.u32 %r2, %r2, %r1;\nadd.u32 %r3, %r1, %r7;\n"
                 "ld.local.u32 %r4, [%r2];\nsetp.ne.u32 %p, %r4, %r3;\n"
                 "@%p atom.global.add.u32 %r5, [%d1], 1;\nadd.u32 %r1, %r1, 1024;\n"
                 "setp.lt.u32 %p, %r1, 131072;\n@%p bra M;\nbar.sync 0;\n"
                 "red.global.add.u32 [%d1+4], 1;\nret;\n}\n"),
            "");
  Limit(48 << 20);  // one block of 256 threads takes 32 MiB of it
  uint32_t* out = Zeroes<uint32_t>(8);
  std::vector<std::thread> launchers;
  std::atomic<int> failures = 0;
  for (int k = 0; k < 4; ++k) {
    launchers.emplace_back([&, k] {
      for (int round = 0; round < 4; ++round) {
        failures += Run("k", 6, 200 + 8 * static_cast<uint32_t>(k), Params().Add(out + 2 * k)) !=
                    CUDA_SUCCESS;
      }
    });
  }
  for (std::thread& launcher : launchers) launcher.join();
  EXPECT_EQ(failures, 0);
  for (uint32_t k = 0; k < 4; ++k) {
    EXPECT_EQ(out[2 * k], 0u) << k;
    EXPECT_EQ(out[2 * k + 1], 4 * 6 * (200 + 8 * k)) << k;
  }
}

// They can never all be there: what a GPU without room for them does, too, is to wait.
TEST_F(KernelMemoryTest, BlocksThatAllWaitStayWithinTheLimit) {
  ASSERT_EQ(Load(Bomb(true)), "");
  Limit(160 << 20);
  uint32_t* out = Zeroes<uint32_t>(1);
  LaunchConfig config{{40, 1, 1}, {64, 1, 1}};
  config.timeout_ms = 1500;
  EXPECT_EQ(Run("k", config, Params().Add(out).Add(uint32_t{40 * 64})), CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_LE(*out, 10u * 64);
  EXPECT_GE(*out, 2u * 64);
}

TEST_F(KernelMemoryTest, ABlockThatNeverFitsIsRefused) {
  ASSERT_EQ(Load(Bomb(false)), "");
  Limit(32 << 20);
  uint32_t* out = Zeroes<uint32_t>(1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(Run("k", 4, 512, Params().Add(out).Add(uint32_t{0})), CUDA_ERROR_OUT_OF_MEMORY);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(*out, 0u);
  // A smaller one does.
  EXPECT_EQ(Run("k", 4, 16, Params().Add(out).Add(uint32_t{0})), CUDA_SUCCESS);
  EXPECT_EQ(*out, 64u);
}

}  // namespace
}  // namespace smolvm::emulation
