#include "host-daemon/emulation/ptx/cfg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/emulation_ptx/source.h"

namespace smolvm::emulation::ptx {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Cfg CfgOf(std::string_view body) { return BuildCfg(ParseOrFail(Kernel(body)).functions[0]); }

TEST(Cfg, ALoopWithAnExit) {
  const Cfg cfg = CfgOf("mov.u32 %r1, 0; LOOP: add.u32 %r1, %r1, 1; @%p1 bra LOOP; ret;");
  ASSERT_EQ(cfg.blocks.size(), 3u);
  EXPECT_THAT(cfg.blocks[0].successors, ElementsAre(1));
  EXPECT_THAT(cfg.blocks[1].successors, ElementsAre(1, 2));
  EXPECT_THAT(cfg.blocks[1].predecessors, ElementsAre(0, 1));
  EXPECT_THAT(cfg.blocks[2].successors, IsEmpty());
  EXPECT_THAT(cfg.reverse_postorder, ElementsAre(0, 1, 2));
}

TEST(Cfg, GuardedExitsGoOn) {
  const Cfg cfg = CfgOf("@%p1 exit; @%p2 trap; ret;");
  ASSERT_EQ(cfg.blocks.size(), 3u);
  EXPECT_THAT(cfg.blocks[0].successors, ElementsAre(1));
  EXPECT_THAT(cfg.blocks[1].successors, ElementsAre(2));
}

TEST(Cfg, IndirectBranchesKeepTheirOrder) {
  const Cfg cfg = CfgOf("T: .branchtargets B, A, B; brx.idx %r1, T; A: ret; B: ret; C: bra A;");
  EXPECT_THAT(cfg.blocks[0].successors, ElementsAre(2, 1, 2));
  EXPECT_THAT(cfg.blocks[2].predecessors, ElementsAre(0));
  EXPECT_FALSE(cfg.reachable[3]);
  EXPECT_EQ(cfg.reverse_postorder.size(), 3u);
}

}  // namespace
}  // namespace smolvm::emulation::ptx
