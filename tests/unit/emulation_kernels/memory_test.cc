// What running kernels take of the host's memory.
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
