#include "machine/util/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "machine/util/failure.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

const fs::path kParent = fs::temp_directory_path() / "smolvm-files-test";

TEST(FilesTest, RemoveTreeOpensClosedFoldersAndFollowsNoLinks) {
  const TempFolder folder(kParent);
  fs::create_directories(folder.path() / "tree/closed/deep");
  std::ofstream(folder.path() / "tree/closed/deep/f") << "x";
  std::ofstream(folder.path() / "outside") << "x";
  fs::create_symlink(folder.path(), folder.path() / "tree/link");
  chmod((folder.path() / "tree/closed").c_str(), 0555);
  EXPECT_TRUE(RemoveTree(folder.path() / "tree"));
  EXPECT_FALSE(fs::exists(folder.path() / "tree"));
  EXPECT_TRUE(fs::exists(folder.path() / "outside"));
  EXPECT_TRUE(RemoveTree(folder.path() / "never-there"));
}

TEST(FilesTest, TempFoldersGoAndStaleOnesAreRemoved) {
  fs::path kept;
  {
    const TempFolder live(kParent);
    kept = live.path();
    fs::create_directories(kParent / "dead");
    std::ofstream(kParent / "dead.lock") << "";
    TempFolder::RemoveStale(kParent);
    EXPECT_TRUE(fs::exists(live.path()));
    EXPECT_FALSE(fs::exists(kParent / "dead"));
    EXPECT_FALSE(fs::exists(kParent / "dead.lock"));
  }
  EXPECT_FALSE(fs::exists(kept));
}

TEST(FilesTest, ReadsAndWrites) {
  const TempFolder folder(kParent);
  WriteFileAtomically(folder.path() / "f", "one\ntwo\n");
  EXPECT_EQ(ReadFile(folder.path() / "f"), "one\ntwo\n");
  EXPECT_EQ(FileTail(folder.path() / "f", 4), "two\n");
  EXPECT_EQ(FileTail(folder.path() / "absent", 4), "");
  EXPECT_THROW(ReadFile(folder.path() / "f", 3), Failure);
  EXPECT_THROW(ReadFile(folder.path() / "absent"), Failure);
  EXPECT_THROW(WriteFileAtomically(folder.path() / "no/f", "x"), Failure);
}

TEST(ToolTest, StatusOutputAndReason) {
  const ToolResult result = RunTool({"sh", "-c", "echo out; echo one >&2; echo why >&2; exit 3"});
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.Reason(), "why");
  EXPECT_EQ(RunTool({"sh", "-c", "kill -9 $$"}).status, 137);
  EXPECT_THROW(MustRun({"false"}, {.doing = "failing"}), Failure);
}

TEST(ToolTest, TheReasonIsNotThatSomethingFailed) {
  ToolResult result;
  result.status = 25;
  result.err =
      "I: running apt-get update...\nErr:2 http://deb.debian.org/debian x Release\n"
      "E: The repository 'x Release' does not have a Release file.\n"
      "E: apt-get update --error-on=any failed\nI: main() received signal PIPE\n"
      "E: mmdebstrap failed to run\n";
  EXPECT_EQ(result.Reason(), "E: The repository 'x Release' does not have a Release file.");
  result.err = "tar: Exiting with failure status due to previous errors\n";
  EXPECT_EQ(result.Reason(), "tar: Exiting with failure status due to previous errors");
  result.err.clear();
  EXPECT_EQ(result.Reason(), "status 25");
}

TEST(ToolTest, AMissingProgramIsNamed) {
  try {
    RunTool({"smolvm-no-such-program"});
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_NE(std::string(failure.what()).find("smolvm-no-such-program"), std::string::npos);
  }
}

TEST(ToolTest, OutputIsBounded) {
  const ToolResult result = RunTool({"sh", "-c", "yes | head -c 20000000; echo end"});
  EXPECT_LT(result.out.size(), size_t{4} << 20);
  EXPECT_EQ(result.out.substr(result.out.size() - 4), "end\n");
}

}  // namespace
}  // namespace smolvm::machine
