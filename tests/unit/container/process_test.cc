#include "container/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "container/launch.h"

namespace smolvm::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using End = ProgramOutput::End;

ProgramOutput Sh(const std::string& script, milliseconds limit = seconds(60),
                 std::size_t bytes = 1 << 20) {
  return RunForOutput({"sh", "-c", script}, limit, bytes);
}

TEST(RunForOutput, GivesOutputAndStatus) {
  const ProgramOutput out = Sh("echo one; echo two >&2; exit 3");
  EXPECT_EQ(out.end, End::kExited);
  EXPECT_EQ(out.status, 3);
  EXPECT_EQ(out.text, "one\n");
  EXPECT_FALSE(out.succeeded());
}

TEST(RunForOutput, TellsHowItEnded) {
  EXPECT_EQ(Sh("kill -9 $$").end, End::kSignalled);
  EXPECT_EQ(Sh("kill -9 $$").status, SIGKILL);
  EXPECT_EQ(RunForOutput({"/no/such/program"}, seconds(60)).end, End::kNotFound);
  EXPECT_EQ(RunForOutput({"/"}, seconds(60)).end, End::kFailed);
  EXPECT_EQ(Sh("cat").text, "");  // there is no input to wait for
}

TEST(RunForOutput, KillsTheWholeGroupAtTheLimit) {
  const ProgramOutput out = Sh("sleep 600 & echo $!; wait", milliseconds(300));
  EXPECT_EQ(out.end, End::kTimedOut);
  const pid_t left_behind = std::stoi(out.text);
  for (int i = 0; i < 1000 && kill(left_behind, 0) == 0; ++i) {
    // An orphan stays a zombie until init takes it; only a live one would have a command line.
    const std::string file = "/proc/" + out.text.substr(0, out.text.find('\n')) + "/cmdline";
    FILE* cmdline = std::fopen(file.c_str(), "r");
    const bool dead = cmdline == nullptr || std::fgetc(cmdline) == EOF;
    if (cmdline != nullptr) std::fclose(cmdline);
    if (dead) return;
    usleep(10000);
  }
  EXPECT_NE(kill(left_behind, 0), 0);
}

TEST(RunForOutput, DoesNotWaitForAChildThatHoldsThePipe) {
  // Would take the whole limit if the end of the pipe were waited for.
  const ProgramOutput out = Sh("sleep 600 & echo $!", seconds(300));
  EXPECT_EQ(out.end, End::kExited);
  ASSERT_FALSE(out.text.empty());
  kill(std::stoi(out.text), SIGKILL);
}

TEST(RunForOutput, BoundsTheOutput) {
  EXPECT_EQ(Sh("yes", seconds(60), 1000).end, End::kTooMuch);
  EXPECT_LE(Sh("yes", seconds(60), 1000).text.size(), 1000u);
  EXPECT_EQ(Sh("head -c 1000 /dev/zero", seconds(60), 1000).text.size(), 1000u);
}

TEST(RunForOutput, TakesOutputInPieces) {
  EXPECT_EQ(Sh("printf a; sleep 0.05; printf b; sleep 0.05; printf c").text, "abc");
  EXPECT_EQ(Sh("head -c 300000 /dev/zero").text.size(), 300000u);
}

TEST(RunForOutput, GoesOnAfterTheProgramClosesItsOutput) {
  EXPECT_EQ(Sh("exec >&-; sleep 0.1; exit 7").status, 7);
}

LaunchResult Launch(const std::string& script, std::string* passed_on = nullptr) {
  testing::internal::CaptureStderr();
  const LaunchResult result = LaunchAndWatch({"sh", "-c", script});
  const std::string captured = testing::internal::GetCapturedStderr();
  if (passed_on != nullptr) *passed_on = captured;
  return result;
}

TEST(Launch, PassesStderrOnAndKeepsIt) {
  std::string passed_on;
  const LaunchResult result = Launch("echo one >&2; echo two >&2; exit 126", &passed_on);
  EXPECT_EQ(result.status, 126);
  EXPECT_EQ(result.last_stderr, "one\ntwo\n");
  EXPECT_EQ(passed_on, "one\ntwo\n");
}

TEST(Launch, KeepsTheLastBytes) {
  const LaunchResult result = Launch("head -c 200000 /dev/zero >&2; printf end >&2");
  EXPECT_EQ(result.last_stderr.size(), kKeptStderr);
  EXPECT_THAT(result.last_stderr, ::testing::EndsWith("end"));
}

TEST(Launch, ASignalsDeathIsAStatusOf128AndMore) {
  EXPECT_EQ(Launch("kill -TERM $$").status, 128 + SIGTERM);
}

TEST(Launch, DoesNotWaitForAChildThatHoldsThePipe) {
  const LaunchResult result = Launch("sleep 600 & echo $! >&2");
  EXPECT_EQ(result.status, 0);
  kill(std::stoi(result.last_stderr), SIGKILL);
}

TEST(Launch, AMissingProgramThrows) {
  try {
    LaunchAndWatch({"/no/such/podman"});
    FAIL();
  } catch (const std::system_error& error) {
    EXPECT_EQ(error.code().value(), ENOENT);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("/no/such/podman"));
  }
}

TEST(Launch, SignalsAreForwarded) {
  // In a process of its own, since the signal is sent to the whole of it.
  const pid_t launcher = fork();
  if (launcher == 0) {
    // The program signals its parent, us. KILL, because a shell's child that has not become `sleep`
    // yet would take TERM for the trap's business.
    const LaunchResult result = LaunchAndWatch(
        {"sh", "-c", "trap 'kill -9 $!; exit 42' TERM; sleep 600 & kill -TERM $PPID; wait"});
    _exit(result.status);
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
}

}  // namespace
}  // namespace smolvm::gpu
