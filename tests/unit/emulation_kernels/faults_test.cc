// How kernels end when something is wrong, and what they print.
#include "tests/unit/emulation_kernels/feature_fixture.h"

namespace smolvm::emulation {
namespace {

using Faults = FeatureTest;

// After a fault the next launch works: what survives is up to the context, not to the device.
TEST_F(Faults, AssertEndsTheKernel) {
  LoadFile("builtins.ptx");
  EXPECT_EQ(Run("fails", 4, 64, Params().Add(uint32_t{63})), CUDA_ERROR_ASSERT);
  EXPECT_EQ(Run("fails", 4, 64, Params().Add(uint32_t{64})), CUDA_SUCCESS);
}

TEST_F(Faults, TrapEndsTheKernel) {
  LoadFile("faults.ptx");
  EXPECT_EQ(Run("traps", 4, 64, Params().Add(uint32_t{1})), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(Run("traps", 4, 64, Params().Add(uint32_t{64})), CUDA_SUCCESS);
}

TEST_F(Faults, AddressesAreChecked) {
  LoadFile("faults.ptx");
  uint64_t* memory = Zeroes<uint64_t>(2);
  memory[0] = 42;
  const auto load = [&](uint64_t from) {
    return Run("loads", 1, 1, Params().Add(from).Add(memory + 1));
  };
  const auto good = reinterpret_cast<uint64_t>(memory);
  for (const uint64_t offset : {1, 2, 4, 7})
    EXPECT_EQ(load(good + offset), CUDA_ERROR_MISALIGNED_ADDRESS) << offset;
  EXPECT_EQ(load(0), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(load(reinterpret_cast<uint64_t>(&good)), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(load(good), CUDA_SUCCESS);
  EXPECT_EQ(memory[1], 42u);
}

TEST_F(Faults, SharedMemoryIsChecked) {
  LoadFile("faults.ptx");
  EXPECT_EQ(Run("shared_beyond", 1, 1, Params().Add(uint32_t{12})), CUDA_SUCCESS);
  for (const uint32_t offset : {1u << 20, 1u << 28, 0x7ffffff0u})
    EXPECT_EQ(Run("shared_beyond", 1, 1, Params().Add(offset)), CUDA_ERROR_ILLEGAL_ADDRESS)
        << offset;
}

TEST_F(Faults, EndlessRecursionOverflowsTheStack) {
  LoadFile("recursion.ptx");
  uint32_t* out = Zeroes<uint32_t>(1);
  EXPECT_EQ(Run("overflow", 1, 1, Params().Add(out)), CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(*out, 0u);
}

TEST_F(Faults, PrintfReachesStdout) {
  LoadFile("builtins.ptx");
  FlushDeviceOutput();
  testing::internal::CaptureStdout();
  EXPECT_EQ(Run("prints", 1, 3, Params()), CUDA_SUCCESS);
  FlushDeviceOutput();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "0 word 1.5 \n1 word 1.5 \n2 word 1.5 \n");
}

}  // namespace
}  // namespace smolvm::emulation
