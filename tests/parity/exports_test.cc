// The committed export list against the toolkit's link-time stub of libcuda.so.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "protocol/gen/exports/export_model.h"
#include "tests/parity/elf_exports.h"

namespace smolvm::exports {
namespace {

std::set<std::string> Listed() {
  std::ifstream in(SMOLVM_EXPORTS_TXT);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto names = ParseExportList(text);
  return {names.begin(), names.end()};
}

TEST(ExportListTest, HasEveryNameOfTheToolkitsStub) {
  if (!std::filesystem::exists(SMOLVM_CUDA_STUB)) GTEST_SKIP() << "no toolkit stub libcuda.so here";
  const std::set<std::string> listed = Listed();
  const std::set<std::string> stub = parity::ElfExports(SMOLVM_CUDA_STUB);
  ASSERT_GT(stub.size(), 600u);
  for (const std::string& name : stub) {
    if (!name.starts_with("cu")) continue;
    EXPECT_TRUE(listed.contains(name)) << name << " is not in exports.txt";
  }
  if (SMOLVM_CUDA_VERSION != 13000) return;  // the version that the list was taken from
  for (const std::string& name : listed)
    EXPECT_TRUE(stub.contains(name)) << name << " is not in the stub library";
}

TEST(ExportListTest, HasTheWholeOf13Point0) { EXPECT_EQ(Listed().size(), 637u); }

}  // namespace
}  // namespace smolvm::exports
