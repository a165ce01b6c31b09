// What a worker may no longer do once it has its backend.
#include <gmock/gmock.h>
#include <linux/landlock.h>
#include <sys/syscall.h>

#include <fstream>
#include <iterator>

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

TEST_F(SandboxTest, TheCacheMayComeFromTheEnvironmentOrBeOff) {
  const std::string cache = folder_ + "/cache";
  setenv("SMOLVM_CUDA_EMULATION_CACHE", cache.c_str(), 1);
  Start();
  EXPECT_THAT(ConnectAndGreet()->Ask(kFakeForbidden, cache), HasSubstr(" cache=done "));
  Kill();
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  Start({"--emulation-cache", "off"});
  std::filesystem::current_path(here);
  unsetenv("SMOLVM_CUDA_EMULATION_CACHE");
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/off"));
  EXPECT_THAT(ConnectAndGreet()->Ask(kFakeForbidden, cache),
              HasSubstr(" read=EPERM list=EPERM write=EPERM cache=EPERM "));
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

// The field of a child of the daemon, from its /proc/PID/status.
std::string StatusOf(pid_t daemon, const std::string& program, const std::string& field) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "status");
    std::string text(std::istreambuf_iterator<char>(file), {});
    // The kernel keeps 15 bytes of a name.
    if (text.find("Name:\t" + program.substr(0, 15) + "\n") == std::string::npos ||
        text.find("\nPPid:\t" + std::to_string(daemon) + "\n") == std::string::npos) {
      continue;
    }
    const size_t at = text.find("\n" + field + ":\t");
    if (at == std::string::npos) return "";
    const size_t value = at + field.size() + 3;
    return text.substr(value, text.find('\n', value) - value);
  }
  return "no such process";
}

TEST_F(SandboxTest, AVsockDeviceIsInOne) {
  Start({"--listen", "vhost-user:" + folder_ + "/device"});
  EXPECT_EQ(StatusOf(pid_, "smolvm-cuda-vsock", "NoNewPrivs"), "1");
  EXPECT_EQ(StatusOf(pid_, "smolvm-cuda-vsock", "Seccomp"), "2");  // SECCOMP_MODE_FILTER
}

TEST_F(SandboxTest, TheDriversWorkerHasNone) {
  Launch({"--listen", "unix:" + socket_, "--backend", "driver", "--driver", "good"});
  ASSERT_TRUE(AwaitLog("event=ready"));
  EXPECT_THAT(log_, HasSubstr(" sandbox=off"));
}

}  // namespace
}  // namespace smolvm::server
