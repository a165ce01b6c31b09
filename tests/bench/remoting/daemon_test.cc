// That a benchmark which is killed leaves no daemon behind.
#include "tests/bench/remoting/daemon.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace smolvm::bench {
namespace {

struct Started {
  pid_t daemon = 0;
  char folder[64] = {};
};

// In a process of its own: starts a daemon, says which, and waits to be killed.
[[noreturn]] void RunBenchmark(int to) {
  const Daemon daemon;
  Started started;
  std::ifstream("/proc/self/task/" + std::to_string(getpid()) + "/children") >> started.daemon;
  const std::string socket = daemon.endpoint().substr(strlen("unix:"));
  std::filesystem::path(socket).parent_path().string().copy(started.folder,
                                                            sizeof started.folder - 1);
  if (write(to, &started, sizeof started) != sizeof started) _exit(1);
  for (;;) pause();
}

// How a process has ended, adopted ones too; -1 when it has not.
int AwaitEnd(pid_t pid, int milliseconds) {
  for (int waited = 0; waited < milliseconds; waited += 10) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) return status;
    poll(nullptr, 0, 10);
  }
  return -1;
}

TEST(BenchDaemon, EndsWithABenchmarkThatIsKilled) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // so that the orphan becomes this process's
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t benchmark = fork();
  if (benchmark == 0) RunBenchmark(ends[1]);
  close(ends[1]);
  Started started;
  const bool told = read(ends[0], &started, sizeof started) == sizeof started;
  close(ends[0]);
  kill(benchmark, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(AwaitEnd(benchmark, 10'000)));
  ASSERT_TRUE(told);
  ASSERT_GT(started.daemon, 0);
  const int status = AwaitEnd(started.daemon, 10'000);
  if (status == -1) kill(started.daemon, SIGKILL);
  EXPECT_NE(status, -1) << "the daemon is still there";
  std::filesystem::remove_all(started.folder);
}

}  // namespace
}  // namespace smolvm::bench
