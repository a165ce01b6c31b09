#include "machine/agent/users.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smolvm::agent {
namespace {

using ::testing::ElementsAre;

constexpr char kPasswd[] =
    "root:x:0:0:root:/root:/bin/sh\nbad line\nweb:x:33:34:w:/var/www:/bin/sh\n";
constexpr char kGroup[] = "root:x:0:\nwww:x:34:\nvideo:x:44:other,web\n";

TEST(UsersTest, NamesAndNumbers) {
  const auto root = FindUser("", kPasswd, kGroup);
  ASSERT_TRUE(root);
  EXPECT_EQ(root->uid, 0u);
  EXPECT_EQ(root->home, "/root");
  const auto web = FindUser("web", kPasswd, kGroup);
  ASSERT_TRUE(web);
  EXPECT_EQ(web->uid, 33u);
  EXPECT_EQ(web->gid, 34u);
  EXPECT_THAT(web->groups, ElementsAre(44u));
  EXPECT_EQ(FindUser("33", kPasswd, kGroup)->home, "/var/www");
  EXPECT_EQ(FindUser("1000:44", kPasswd, kGroup)->gid, 44u);
  EXPECT_EQ(FindUser("web:video", kPasswd, kGroup)->gid, 44u);
}

TEST(UsersTest, UnknownOnes) {
  EXPECT_FALSE(FindUser("nobody", kPasswd, kGroup));
  EXPECT_FALSE(FindUser("web:nogroup", kPasswd, kGroup));
  EXPECT_TRUE(FindUser("", "", ""));  // an image without /etc/passwd has a root all the same
}

}  // namespace
}  // namespace smolvm::agent
