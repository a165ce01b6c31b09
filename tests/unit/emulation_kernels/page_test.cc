// docs/ptx.md is generated and committed, so that it can be read without a build.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "host-daemon/emulation/codegen/compiler.h"
#include "host-daemon/emulation/ptx/table.h"

namespace smolvm::emulation {
namespace {

TEST(PtxPage, IsWhatTheGeneratorWrites) {
  std::ifstream file(SMOLVM_PTX_PAGE);
  const std::string committed(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(committed == ptx::OpcodePage(codegen::IsTranslated))
      << "run: ninja smolvm_ptx_table && bin/smolvm_ptx_table > docs/ptx.md";
}

}  // namespace
}  // namespace smolvm::emulation
