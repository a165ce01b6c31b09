#include "machine/launch/mounts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

using ::testing::HasSubstr;

class MountsTest : public ::testing::Test {
 protected:
  const TempFolder folder_{std::filesystem::temp_directory_path() / "smolvm-mounts-test"};
  const std::string host_ = folder_.path();

  std::string WhyNot(const std::string& text) {
    try {
      ParseMount(text);
    } catch (const Failure& failure) {
      return failure.what();
    }
    return "it was accepted";
  }
};

TEST_F(MountsTest, FoldersAndFiles) {
  const Share folder = ParseMount(host_ + ":/data/x/");
  EXPECT_EQ(folder.host, host_);
  EXPECT_EQ(folder.guest, "/data/x");
  EXPECT_FALSE(folder.read_only);
  EXPECT_FALSE(folder.is_file);
  std::ofstream(host_ + "/f") << "x";
  const Share file = ParseMount(host_ + "/f:/etc/f:ro");
  EXPECT_TRUE(file.read_only);
  EXPECT_TRUE(file.is_file);
}

TEST_F(MountsTest, BadOnesSayWhy) {
  EXPECT_THAT(WhyNot(host_), HasSubstr("HOST:GUEST"));
  EXPECT_THAT(WhyNot(":/x"), HasSubstr("HOST:GUEST"));
  EXPECT_THAT(WhyNot("rel:/x"), HasSubstr("host's side must be an absolute"));
  EXPECT_THAT(WhyNot("./rel:/x"), HasSubstr("absolute"));
  EXPECT_THAT(WhyNot(host_ + ":x"), HasSubstr("machine's side"));
  EXPECT_THAT(WhyNot(host_ + ":/"), HasSubstr("root"));
  EXPECT_THAT(WhyNot(host_ + ":/x/../.."), HasSubstr("root"));
  EXPECT_THAT(WhyNot(host_ + ":/proc/x"), HasSubstr("/proc"));
  EXPECT_THAT(WhyNot(host_ + ":/opt/smolvm-cuda"), HasSubstr("/opt/smolvm-cuda"));
  EXPECT_THAT(WhyNot(host_ + ":/x:rx"), HasSubstr("'rx'"));
  EXPECT_THAT(WhyNot(host_ + "/absent:/x"), HasSubstr("No such file"));
  EXPECT_THAT(WhyNot("/dev/null:/x"), HasSubstr("neither"));
}

TEST_F(MountsTest, OuterFoldersComeFirst) {
  const auto shares = ParseMounts({host_ + ":/a/b", host_ + ":/a"});
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].guest, "/a");
  EXPECT_THROW(ParseMounts({host_ + ":/a", host_ + ":/a/"}), Failure);
}

}  // namespace
}  // namespace smolvm::machine
