#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/scripts/sandbox.h"

namespace smolvm::scripts {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kRecord[] = "state/smolvm-skills/gpu-cuda.machines";

class CleanupTest : public ::testing::Test {
 protected:
  CleanupTest() {
    box_.AddLauncher("1.2.3");
    box_.Set("SMOLVM_CLEANUP_WAIT", "1");
  }
  ~CleanupTest() override {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
  }

  Outcome Run(const std::string& arguments = "") { return box_.Run("cleanup.sh", arguments); }

  // A process that looks like the VM of the machine `name` of the user whose state folder is
  // `state`.
  void StartVm(const std::filesystem::path& state, const std::string& name) {
    const std::string socket =
        "unix:" + (state / "smolvm/machines" / name / "serial.sock").string() + ",server=on";
    process_ = fork();
    if (process_ == 0) {
      execl("/bin/bash", "/usr/bin/qemu-system-x86_64", "-c",
            "while :; do read -t 60 <> <(:); done", "vm", "-serial", socket.c_str(), nullptr);
      _exit(127);
    }
  }
  // A helper process that names no folder and works in that of the machine `name`.
  void StartHelper(const std::string& name) {
    const std::filesystem::path folder = box_.state_home() / "smolvm/machines" / name;
    std::filesystem::create_directories(folder);
    process_ = fork();
    if (process_ == 0) {
      if (chdir(folder.c_str()) != 0) _exit(127);
      execl("/bin/bash", "/usr/bin/smolvm-cuda-daemon", "-c",
            "while :; do read -t 60 <> <(:); done", nullptr);
      _exit(127);
    }
  }
  bool VmIsAlive() {
    int status = 0;
    if (waitpid(process_, &status, WNOHANG) == 0) return true;
    process_ = -1;
    return false;
  }

  Sandbox box_;
  pid_t process_ = -1;
};

TEST_F(CleanupTest, SaysThatAllIsClean) {
  const Outcome outcome = Run();
  EXPECT_THAT(
      outcome.out,
      MatchesRegex("waiting=up to 1s [^\n]*\nwaited=0s\nmachines=clean\nvm_processes=none\n"));
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(CleanupTest, WaitsTwentySecondsUnlessTold) {
  box_.Set("SMOLVM_CLEANUP_WAIT", "");
  EXPECT_THAT(Run().out, StartsWith("waiting=up to 20s "));
}

TEST_F(CleanupTest, DeletesRecordedMachinesAlone) {
  box_.Write("list", "smolskill-a    running\nmine           running\nsmolskill-b    running\n");
  box_.Write(kRecord, "smolskill-a\nsmolskill-gone\nmine\n");
  const Outcome outcome = Run();
  EXPECT_EQ(box_.Read("list"), "mine           running\nsmolskill-b    running\n");
  EXPECT_THAT(box_.Read("calls"), HasSubstr("machine delete --name smolskill-a --force\n"));
  EXPECT_THAT(box_.Read("calls"), Not(HasSubstr("--name mine")));
  EXPECT_THAT(box_.Read("calls"), Not(HasSubstr("--name smolskill-b")));
  EXPECT_THAT(box_.Read("calls"), Not(HasSubstr("--name smolskill-gone")));
  EXPECT_THAT(outcome.out, HasSubstr("skipping mine: "));
}

TEST_F(CleanupTest, FailsWithMachinesLeft) {
  box_.Write("list", "mine           running\n");
  const Outcome outcome = Run("--purge");
  EXPECT_THAT(outcome.out, HasSubstr("machines=remaining\n"
                                     "NAME                STATUS\n"
                                     "--------------------------\n"
                                     "mine           running\n"));
  EXPECT_THAT(outcome.out, HasSubstr("smolvm machine delete --name NAME"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(CleanupTest, PurgesTheRecordOnceNothingIsLeft) {
  box_.Write(kRecord, "smolskill-a\n");
  box_.Write("list", "mine           running\n");
  Run("--purge");
  EXPECT_TRUE(std::filesystem::exists(box_.record_file()));
  box_.Write("list", "smolskill-a    running\n");
  EXPECT_EQ(Run().status, 0);
  EXPECT_TRUE(std::filesystem::exists(box_.record_file()));
  EXPECT_EQ(Run("--purge").status, 0);
  EXPECT_FALSE(std::filesystem::exists(box_.record_file()));
}

TEST_F(CleanupTest, RecordsAName) {
  EXPECT_EQ(Run("--record smolskill-x").status, 0);
  EXPECT_EQ(Run("--record smolskill-y").status, 0);
  EXPECT_EQ(box_.Read(kRecord), "smolskill-x\nsmolskill-y\n");
  EXPECT_EQ(box_.Read("calls"), "");
  for (const char* arguments :
       {"--record mine", "--record", "--record smolskill-", "--record smolskill-z --reap"}) {
    EXPECT_EQ(Run(arguments).status, 2) << arguments;
  }
  EXPECT_EQ(box_.Read(kRecord), "smolskill-x\nsmolskill-y\n");
}

TEST_F(CleanupTest, ReportsAVmThatIsStillThere) {
  StartVm(box_.state_home(), "vm-1");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              EndsWith("machines=clean\nvm_process=" + std::to_string(process_) +
                       " config=" + box_.state_home().string() + "/smolvm/machines/vm-1\n"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(VmIsAlive());
}

TEST_F(CleanupTest, ReapsThatVm) {
  StartVm(box_.state_home(), "vm-1");
  const std::string pid = std::to_string(process_);
  const Outcome outcome = Run("--reap");
  EXPECT_THAT(outcome.out, HasSubstr("reaped=" + pid + " config="));
  EXPECT_THAT(outcome.out, EndsWith("vm_processes=none\n"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_FALSE(VmIsAlive());
}

TEST_F(CleanupTest, FindsHelpersByWhereTheyWork) {
  StartHelper("vm-2");
  const std::string pid = std::to_string(process_);
  EXPECT_THAT(Run("--reap").out,
              HasSubstr("reaped=" + pid +
                        " config=" + (box_.state_home() / "smolvm/machines/vm-2").string() + "\n"));
  EXPECT_FALSE(VmIsAlive());
}

TEST_F(CleanupTest, LeavesVmsOfOtherStateFoldersAlone) {
  StartVm(box_.dir() / "other", "vm-1");
  const Outcome outcome = Run("--reap");
  EXPECT_THAT(outcome.out, EndsWith("machines=clean\nvm_processes=none\n"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(VmIsAlive());
}

TEST_F(CleanupTest, FailsWhenTheListCannotBeHad) {
  box_.Write("list_fails", "");
  Outcome outcome = Run("--purge");
  EXPECT_THAT(outcome.err, HasSubstr("'smolvm machine list' failed: state folder is unreadable"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("machines=clean")));
  EXPECT_EQ(outcome.status, 1);
  box_.RemoveTool("smolvm");
  outcome = Run();
  EXPECT_THAT(outcome.err, HasSubstr("the launcher is missing"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(CleanupTest, RefusesUnknownArguments) {
  for (const char* arguments : {"--bogus", "name", "--purge --bogus"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("unknown argument '"));
  }
  EXPECT_EQ(box_.Read("calls"), "");
  EXPECT_EQ(Run("--help").status, 0);
}

}  // namespace
}  // namespace smolvm::scripts
