// Two signatures have one number only when they are the same in every size and alignment.
#include <gtest/gtest.h>

#include "host-daemon/emulation/codegen/call_layout.h"

namespace smolvm::emulation::codegen {
namespace {

ptx::Variable Bytes(uint64_t bytes, uint32_t alignment) {
  ptx::Variable variable;
  variable.space = ptx::StateSpace::kParam;
  variable.bytes = bytes;
  variable.alignment = alignment;
  return variable;
}

std::vector<ptx::Variable> List(std::initializer_list<uint64_t> sizes, uint32_t alignment = 1) {
  std::vector<ptx::Variable> list;
  for (const uint64_t bytes : sizes) list.push_back(Bytes(bytes, alignment));
  return list;
}

// An attack made these equal under a 64-bit hash (FNV-1a).
TEST(LayoutNumbers, AreNotFooledByACollision) {
  LayoutNumbers numbers;
  const uint64_t small = numbers.Of(List({4}, 4), {});
  const uint64_t large =
      numbers.Of({Bytes(2448, 16)},
                 List({160, 50, 33, 105, 17, 56, 217, 163, 24, 27, 125, 248, 29, 95, 191, 33}));
  EXPECT_NE(small, large);
}

TEST(LayoutNumbers, AreTheSameForTheSameAlone) {
  LayoutNumbers numbers;
  const uint64_t first = numbers.Of(List({4, 8}, 4), List({1, 2}));
  EXPECT_NE(first, 0u);
  EXPECT_EQ(first, numbers.Of(List({4, 8}, 4), List({1, 2})));
  EXPECT_NE(first, numbers.Of(List({4, 8}, 8), List({1, 2})));
  EXPECT_NE(first, numbers.Of(List({4}, 4), List({8, 1, 2})));
  EXPECT_NE(first, numbers.Of(List({8, 4}, 4), List({1, 2})));
  EXPECT_NE(first, numbers.Of(List({4, 8, 1}, 4), List({2})));
  EXPECT_NE(first, numbers.Of({}, List({4, 8, 1, 2})));
}

TEST(LayOut, PutsEachBehindTheOtherAtItsAlignment) {
  const ParamLayout layout = LayOut({Bytes(1, 1), Bytes(8, 8), Bytes(3, 1), Bytes(64, 128)});
  EXPECT_EQ(layout.offsets, (std::vector<uint64_t>{0, 8, 16, 32}));
  EXPECT_EQ(layout.bytes, 96u);
  EXPECT_EQ(CallBlockBytes(layout), 96u);
  EXPECT_EQ(CallBlockBytes(LayOut({Bytes(1, 1)})), 16u);
  EXPECT_EQ(CallBlockBytes(LayOut({})), 0u);
}

}  // namespace
}  // namespace smolvm::emulation::codegen
