// What happens to a machine's name: the smolvm program and its real supervisors over a QEMU that is
// the agent on this host, so that a machine starts in no time and hundreds of rounds are quick.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "machine/state/store.h"
#include "machine/util/files.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

// By SMOLVM_TEST_ROUNDS more, which takes minutes.
int Rounds() {
  const char* given = std::getenv("SMOLVM_TEST_ROUNDS");
  return given != nullptr ? std::atoi(given) : 8;
}

// The agent takes its secret from the initramfs, as in a machine, and the place of its launcher
// from the folder that QEMU works in. It ends when it is told to power off: so does QEMU.
constexpr char kQemu[] = R"(#!/bin/sh
[ -z "$SLOW_START" ] || sleep "$SLOW_START"
while [ $# -gt 0 ]; do [ "$1" != -initrd ] || initrd=$2; shift; done
secret=$(grep -a -o '"secret": *"[0-9a-f]*"' "$initrd" | grep -o '[0-9a-f]*"$' | tr -d '"')
if [ -n "$LINGER" ]; then
  # A QEMU whose memory takes the kernel a while to take away: what holds its files is left.
  sleep "$LINGER" >/dev/null 2>&1 &
fi
exec "$SMOLVM_MACHINE_AGENT" --connect agent.sock --secret "$secret"
)";
constexpr char kVsockDevice[] = "#!/bin/sh\necho ready\nexec sleep 1000\n";

class LifecycleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // The kernel's vsock carries no connection from this host to itself by the machine's number.
    if (access("/dev/vhost-vsock", R_OK | W_OK) == 0) {
      GTEST_SKIP() << "skipped: machines use the kernel's vsock here, which the fake QEMU cannot";
    }
    Program(bin_ / "qemu-system-x86_64", kQemu);
    Program(bin_ / "qemu-system-aarch64", kQemu);
    Program(bin_ / "vsock-device", kVsockDevice);
    const fs::path kernels = folder_.path() / "cache/smolvm-cuda/kernels";
    fs::create_directories(kernels / "fake/modules");
    std::ofstream(kernels / "current") << "fake";
    std::ofstream(kernels / "fake/vmlinuz") << "kernel";
    std::ofstream(kernels / "fake/kernel.json") << R"({"modules": []})";
    std::ofstream(folder_.path() / "image") << "image";
    environment_ = {{"XDG_STATE_HOME", (folder_.path() / "state").string()},
                    {"XDG_CACHE_HOME", (folder_.path() / "cache").string()},
                    {"PATH", bin_.string() + ":/usr/bin:/bin"},
                    {"SMOLVM_VSOCK_DEVICE", (bin_ / "vsock-device").string()},
                    {"SMOLVM_MACHINE_AGENT", SMOLVM_AGENT},
                    {"SMOLVM_ACCELERATOR", "tcg"}};
  }

  static void Program(const fs::path& path, const char* text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    fs::permissions(path, fs::perms::owner_all);
  }

  // A kept machine that has run and is stopped.
  void Keep(const std::string& name) {
    MachineRecord record;
    record.name = name;
    record.ephemeral = false;
    record.image = "fake";
    record.image_file = folder_.path() / "image";
    record.memory_mib = 128;
    record.workdir = "/";
    record.env = {"PATH=/usr/bin:/bin"};
    record.ready_timeout_s = 30;
    store_.Create(record);
  }

  ToolResult Machine(const Words& words) const {
    return RunTool(Line(words), {.env = environment_});
  }
  // One that must succeed.
  void Must(const Words& words) const {
    const ToolResult result = Machine(words);
    EXPECT_EQ(result.status, 0) << words[0] << ": " << result.err;
  }
  pid_t InBackground(const Words& words, const fs::path& output) const {
    return StartChild(Line(words), output, "", environment_);
  }
  static Words Line(const Words& words) {
    Words argv = {SMOLVM, "machine"};
    argv.insert(argv.end(), words.begin(), words.end());
    return argv;
  }
  static int StatusOf(pid_t pid) {
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  bool WaitUntilLocked(const std::string& name) const {
    for (int i = 0; i < 10000 && !store_.Locked(name); ++i) usleep(1000);
    return store_.Locked(name);
  }
  pid_t SupervisorOf(const std::string& name) const {
    const std::string record =
        "supervise --record " + (store_.FolderOf(name) / "machine.json").string();
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline");
      std::string words((std::istreambuf_iterator<char>(file)), {});
      std::replace(words.begin(), words.end(), '\0', ' ');
      if (words.find(record) != std::string::npos) {
        return std::atoi(entry.path().filename().c_str());
      }
    }
    return -1;
  }

  const TempFolder folder_{fs::temp_directory_path() / "smolvm-lifecycle-test"};
  const fs::path bin_ = folder_.path() / "bin";
  const fs::path first_ = folder_.path() / "first", second_ = folder_.path() / "second";
  MachineStore store_{folder_.path() / "state/smolvm"};
  std::vector<std::pair<std::string, std::string>> environment_;
};

TEST_F(LifecycleTest, StopReturnsWhenTheMachineIsStopped) {
  Keep("box");
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    Must({"exec", "--name", "box", "--", "true"});
    EXPECT_TRUE(store_.Locked("box"));
    Must({"stop", "--name", "box"});
    EXPECT_FALSE(store_.Locked("box"));
    EXPECT_TRUE(store_.Lock("box").valid());
    Must({"stop", "--name", "box"});
  }
}

TEST_F(LifecycleTest, StopThenDelete) {
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    Keep("box");
    Must({"exec", "--name", "box", "--", "true"});
    Must({"stop", "--name", "box"});
    Must({"delete", "--name", "box"});
    EXPECT_FALSE(fs::exists(store_.FolderOf("box")));
  }
}

TEST_F(LifecycleTest, StopThenStart) {
  Keep("box");
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    Must({"exec", "--name", "box", "--", "true"});
    Must({"stop", "--name", "box", "--force"});
  }
}

TEST_F(LifecycleTest, StopsAtOnceAllSucceed) {
  Keep("box");
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    Must({"exec", "--name", "box", "--", "true"});
    std::vector<pid_t> stops;
    for (int i = 0; i < 4; ++i) stops.push_back(InBackground({"stop", "--name", "box"}, first_));
    // A look is not in the way, and sees one or the other.
    EXPECT_THAT(Machine({"list"}).out, ContainsRegex("box +(running|stopped)"));
    for (const pid_t pid : stops) EXPECT_EQ(StatusOf(pid), 0) << FileTail(first_, 1000);
    EXPECT_FALSE(store_.Locked("box"));
  }
}

// Whoever comes first, the command runs: in the machine as it was, or in one that is started again.
// One whose machine was stopped under it says so.
TEST_F(LifecycleTest, ExecAndStopAtOnce) {
  Keep("box");
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    Must({"exec", "--name", "box", "--", "true"});
    const pid_t stop = InBackground({"stop", "--name", "box"}, first_);
    usleep(round % 10 * 3000);
    const ToolResult exec = Machine({"exec", "--name", "box", "--", "true"});
    if (exec.status != 0) {
      EXPECT_THAT(exec.err, AnyOf(HasSubstr("it was stopped"), HasSubstr("box was stopped")));
    }
    EXPECT_EQ(StatusOf(stop), 0) << FileTail(first_, 1000);
  }
  Must({"delete", "--force", "--name", "box"});
}

TEST_F(LifecycleTest, SomeWhoStartItAtOnceShareIt) {
  Keep("box");
  for (int round = 0; round < Rounds() && !HasFailure(); ++round) {
    std::vector<pid_t> commands;
    for (int i = 0; i < 3; ++i) {
      commands.push_back(InBackground({"exec", "--name", "box", "--", "true"}, first_));
    }
    for (const pid_t pid : commands) EXPECT_EQ(StatusOf(pid), 0) << FileTail(first_, 1000);
    Must({"stop", "--name", "box"});
  }
}

TEST_F(LifecycleTest, StopDuringTheStart) {
  Keep("box");
  environment_.emplace_back("SLOW_START", "1.5");
  for (int round = 0; round < std::min(10, Rounds()) && !HasFailure(); ++round) {
    std::error_code ignored;
    fs::remove(first_, ignored);
    const pid_t exec = InBackground({"exec", "--name", "box", "--", "true"}, first_);
    ASSERT_TRUE(WaitUntilLocked("box"));
    usleep(round * 10000);
    Must({"stop", "--name", "box"});
    EXPECT_FALSE(store_.Locked("box"));
    EXPECT_EQ(StatusOf(exec), 125);
    EXPECT_THAT(FileTail(first_, 1000),
                HasSubstr("the machine box was stopped before it was ready"));
  }
  EXPECT_TRUE(store_.Find("box"));
}

TEST_F(LifecycleTest, DeleteWaitsForAStopButEndsNoRunningMachine) {
  environment_.emplace_back("SLOW_START", "1.5");
  for (int round = 0; round < std::min(10, Rounds()) && !HasFailure(); ++round) {
    Keep("box");
    const pid_t exec = InBackground({"exec", "--name", "box", "--", "true"}, first_);
    ASSERT_TRUE(WaitUntilLocked("box"));
    const ToolResult refused = Machine({"delete", "--name", "box"});
    EXPECT_EQ(refused.status, 125);
    EXPECT_THAT(refused.err, HasSubstr("the machine box is running; stop it first"));
    EXPECT_EQ(StatusOf(exec), 0) << FileTail(first_, 1000);
    const pid_t stop = InBackground({"stop", "--name", "box"}, second_);
    ToolResult removed = Machine({"delete", "--name", "box"});
    while (removed.status != 0) {  // the stop has not begun
      EXPECT_THAT(removed.err, HasSubstr("the machine box is running; stop it first"));
      if (HasFailure()) break;
      removed = Machine({"delete", "--name", "box"});
    }
    EXPECT_EQ(StatusOf(stop), 0) << FileTail(second_, 1000);
    EXPECT_FALSE(fs::exists(store_.FolderOf("box")));
  }
}

TEST_F(LifecycleTest, SeveralNamesAndOneThatIsNot) {
  for (const char* name : {"one", "two", "three"}) Keep(name);
  Must({"exec", "one", "--", "true"});
  Must({"exec", "two", "--", "true"});
  const ToolResult result = Machine({"stop", "one", "nobody", "two"});
  EXPECT_EQ(result.status, 125);
  EXPECT_EQ(result.err, "smolvm: there is no machine named 'nobody'; there are: one, three, two\n");
  EXPECT_FALSE(store_.Locked("one") || store_.Locked("two"));
  EXPECT_THAT(Machine({"list", "two"}).out, Not(HasSubstr("three")));
  Must({"delete", "one", "two"});
  const std::string left = Machine({"list"}).out;
  EXPECT_THAT(left, HasSubstr("three"));
  EXPECT_THAT(left, Not(HasSubstr("one")));
  Must({"prune", "three"});
  EXPECT_EQ(Machine({"list"}).out, "No machines found\n");
  EXPECT_EQ(Machine({"exec", "three", "--", "true"}).err,
            "smolvm: there is no machine named 'three', nor any other\n");
}

// Until the last process that writes the machine's disk is gone, the machine is not stopped.
TEST_F(LifecycleTest, AKilledSupervisorsMachineIsStoppedWhenItsQemuIsGone) {
  Keep("box");
  environment_.emplace_back("LINGER", "0.7");
  Must({"exec", "--name", "box", "--", "true"});
  const pid_t supervisor = SupervisorOf("box");
  ASSERT_GT(supervisor, 0);
  kill(supervisor, SIGKILL);
  while (SupervisorOf("box") > 0) usleep(1000);
  EXPECT_TRUE(store_.Locked("box"));
  Must({"stop", "--name", "box"});
  EXPECT_FALSE(store_.Locked("box"));
  Must({"exec", "--name", "box", "--", "true"});
  Must({"delete", "--force", "--name", "box"});
}

}  // namespace
}  // namespace smolvm::machine
