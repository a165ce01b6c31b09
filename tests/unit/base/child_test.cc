#include "protocol/base/child.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "protocol/base/unique_fd.h"

namespace smolvm {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  UniqueFd read, write;
};

std::string ReadAll(int fd) {
  std::string text;
  char block[4096];
  ssize_t n;
  while ((n = read(fd, block, sizeof block)) > 0) text.append(block, n);
  return text;
}

int ExitOf(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// What a shell with `script` says on its standard output.
std::string Says(const std::string& script, ChildOptions options = {}) {
  Pipe out;
  options.output = out.write.get();
  int error = 0;
  const pid_t child = StartChild("sh", {"sh", "-c", script}, options, &error);
  EXPECT_GT(child, 0) << error;
  out.write.reset();
  const std::string text = ReadAll(out.read.get());
  EXPECT_EQ(ExitOf(child), 0);
  return text;
}

TEST(ChildTest, InputIsEmptyUnlessItIsGiven) {
  EXPECT_EQ(Says("cat; echo end"), "end\n");
  Pipe in;
  ASSERT_EQ(write(in.write.get(), "given\n", 6), 6);
  in.write.reset();
  EXPECT_EQ(Says("cat", {.input = in.read.get()}), "given\n");
}

TEST(ChildTest, AMissingProgramIsAnErrorAndNoChild) {
  int error = 0;
  EXPECT_EQ(StartChild("/no/such/program", {"x"}, {}, &error), -1);
  EXPECT_EQ(error, ENOENT);
  EXPECT_EQ(StartChild("no-such-program-anywhere", {"x"}, {}, &error), -1);
  EXPECT_EQ(error, ENOENT);
  EXPECT_EQ(StartChild("/etc/passwd", {"x"}, {}, &error), -1);
  EXPECT_EQ(error, EACCES);
  EXPECT_EQ(StartChild("sh", {"sh", "-c", "true"}, {.workdir = "/no/such/folder"}, &error), -1);
  EXPECT_EQ(error, ENOENT);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(ChildTest, EnvironmentAndFolder) {
  setenv("CHILD_TEST_A", "old", 1);
  setenv("CHILD_TEST_AB", "kept", 1);
  const ChildOptions options{
      .workdir = "/usr",
      .env = {{"CHILD_TEST_A", "old too"}, {"CHILD_TEST_C", "added=1"}, {"CHILD_TEST_A", "new"}}};
  EXPECT_EQ(Says("pwd; echo $CHILD_TEST_A $CHILD_TEST_AB $CHILD_TEST_C", options),
            "/usr\nnew kept added=1\n");
  EXPECT_STREQ(getenv("CHILD_TEST_A"), "old");
}

TEST(ChildTest, NothingElseIsLeftOpen) {
  const UniqueFd leaked(open("/dev/null", O_RDONLY));  // not close-on-exec
  Pipe pass;
  EXPECT_EQ(
      Says("ls /proc/self/fd | sort -n | tr '\\n' ' '", {.pass = pass.write.get(), .pass_as = 3}),
      "0 1 2 3 4 ");  // 4 is the folder, which ls itself opens
  EXPECT_EQ(Says("echo passed >&3; echo x", {.pass = pass.write.get(), .pass_as = 3}), "x\n");
  pass.write.reset();
  EXPECT_EQ(ReadAll(pass.read.get()), "passed\n");
}

// As in a daemon that was started with closed streams: pipes and sockets get the lowest numbers.
TEST(ChildTest, DescriptorsBelowThreeAreNotTakenForOneAnother) {
  const pid_t parent = fork();
  if (parent == 0) {
    for (const int fd : {0, 1, 2}) close(fd);
    int out[2], pass[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(pass, O_CLOEXEC) != 0) _exit(1);  // 0 to 3
    int error = 0;
    const pid_t child =
        StartChild("sh", {"sh", "-c", "echo out; echo err >&2; echo passed >&3"},
                   {.output = out[1], .error = out[1], .pass = pass[1], .pass_as = 3}, &error);
    close(out[1]);
    close(pass[1]);
    const bool right =
        child > 0 && ReadAll(out[0]) == "out\nerr\n" && ReadAll(pass[0]) == "passed\n";
    _exit(right ? 42 : 2);
  }
  EXPECT_EQ(ExitOf(parent), 42);
}

TEST(ChildTest, SignalsOfTheParentAreNotTheChilds) {
  struct sigaction ignore {
  }, term_before{}, usr1_before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGTERM, &ignore, &term_before);
  struct sigaction handle {};
  handle.sa_handler = [](int) { abort(); };
  sigaction(SIGUSR1, &handle, &usr1_before);
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, nullptr);
  int error = 0;
  const std::vector<std::string> script = {"sh", "-c", "kill -TERM $$; exit 3"};
  EXPECT_EQ(ExitOf(StartChild("sh", script, {}, &error)), -SIGTERM);
  EXPECT_EQ(ExitOf(StartChild("sh", script, {.default_signals = false}, &error)), 3);
  sigset_t none;
  sigemptyset(&none);
  sigaction(SIGTERM, &term_before, nullptr);
  EXPECT_EQ(ExitOf(StartChild("sh", script, {.default_signals = false}, &error)), 3);
  EXPECT_EQ(ExitOf(StartChild("sh", script, {.default_signals = false, .mask = &none}, &error)),
            -SIGTERM);
  EXPECT_EQ(ExitOf(StartChild("sh", {"sh", "-c", "kill -USR1 $$; exit 3"}, {}, &error)), -SIGUSR1);
  pthread_sigmask(SIG_UNBLOCK, &term, nullptr);
  sigaction(SIGUSR1, &usr1_before, nullptr);
}

TEST(ChildTest, AGroupOfItsOwn) {
  int error = 0;
  const pid_t child = StartChild("sleep", {"sleep", "1000"}, {.own_group = true}, &error);
  ASSERT_GT(child, 0);
  EXPECT_EQ(getpgid(child), child);
  EXPECT_EQ(kill(-child, SIGKILL), 0);
  EXPECT_EQ(ExitOf(child), -SIGKILL);
}

TEST(ChildTest, EndsWithTheThreadThatStartedIt) {
  pid_t child = -1;
  std::thread([&] {
    int error = 0;
    child = StartChild("sleep", {"sleep", "1000"}, {.death_signal = SIGKILL}, &error);
  }).join();
  EXPECT_EQ(ExitOf(child), -SIGKILL);
}

TEST(ChildTest, ManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] {
      for (int round = 0; round < 20; ++round) {
        int error = 0;
        const pid_t child = StartChild("true", {"true"}, {}, &error);
        ASSERT_GT(child, 0);
        EXPECT_EQ(ExitOf(child), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace smolvm
