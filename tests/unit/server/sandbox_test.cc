// What a worker may no longer do once it has its backend.
#include <gmock/gmock.h>
#include <linux/landlock.h>
#include <sys/syscall.h>

#include "tests/unit/server/daemon_fixture.h"

namespace smolvm::server {
namespace {

using ::testing::HasSubstr;

using SandboxTest = DaemonTest;

TEST_F(SandboxTest, AnEmulatingWorkerCanDoNothingElse) {
  const std::string cache = folder_ + "/cache";
  Start({"--emulation-cache", cache});
  EXPECT_THAT(log_, HasSubstr(" sandbox=on"));
  const std::string outcome = ConnectAndGreet()->Ask(kFakeForbidden, cache);
  EXPECT_THAT(outcome, HasSubstr("fork=EPERM exec=EPERM inet=EPERM unix=EPERM signal=EPERM "
                                 "unshare=EPERM ptrace=EPERM "));
  EXPECT_THAT(outcome, HasSubstr(" cache=done needed=done "));
  const bool landlock =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) > 0;
  if (!landlock) GTEST_SKIP() << "skipped: files stay open, this kernel has no Landlock";
  EXPECT_THAT(outcome, HasSubstr(" read=EACCES list=EACCES write=EACCES "));
}

TEST_F(SandboxTest, WithoutItAllOfThatWorks) {
  const std::string cache = folder_ + "/cache";
  std::filesystem::create_directory(cache);
  Start({"--sandbox", "off"});
  EXPECT_THAT(log_, HasSubstr(" sandbox=off"));
  EXPECT_EQ(ConnectAndGreet()->Ask(kFakeForbidden, cache),
            "fork=done exec=done inet=done unix=done signal=done unshare=done ptrace=done "
            "read=done list=done write=done cache=done needed=done ");
}

TEST_F(SandboxTest, TheDriversWorkerHasNone) {
  Launch({"--listen", "unix:" + socket_, "--backend", "driver", "--driver", "good"});
  ASSERT_TRUE(AwaitLog("event=ready"));
  EXPECT_THAT(log_, HasSubstr(" sandbox=off"));
}

}  // namespace
}  // namespace smolvm::server
