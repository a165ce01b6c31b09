#include "tests/bench/remoting/daemon.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/bench/measure.h"
#include "tests/bench/remoting/cuda.h"

namespace smolvm::bench {
namespace {

constexpr double kReadyMs = 30'000;

// Reads what the daemon logs until it says that it is ready.
bool AwaitReady(int fd) {
  std::string log;
  const double deadline = Now() + kReadyMs;
  while (Now() < deadline) {
    pollfd entry{fd, POLLIN, 0};
    if (poll(&entry, 1, 100) <= 0) continue;
    char bytes[4096];
    const ssize_t got = read(fd, bytes, sizeof bytes);
    if (got <= 0) return false;
    log.append(bytes, static_cast<size_t>(got));
    if (log.find("event=ready") != std::string::npos) return true;
  }
  return false;
}

// A process that ends with this one, however this one ends, writing to `output`; -1 on failure.
pid_t StartBound(char* const* argv, int output) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it ended before that
  dup2(output, STDERR_FILENO);
  dup2(output, STDOUT_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

Daemon::Daemon() {
  char folder[] = "/tmp/smolvm-bench-XXXXXX";
  if (mkdtemp(folder) == nullptr) Fail("no temporary folder");
  folder_ = folder;
  // The log goes to a pipe that is read no further than the line that says it is ready, so the
  // level is one at which little follows.
  const std::string arguments[] = {DAEMON,      "--listen",        endpoint(), "--backend",
                                   "emulation", "--workers-ready", "2"};
  char* argv[std::size(arguments) + 1] = {};
  for (size_t i = 0; i < std::size(arguments); ++i) {
    argv[i] = const_cast<char*>(arguments[i].c_str());
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) Fail("no pipe");
  // A daemon whose log nobody reads must not stop at a full pipe.
  fcntl(ends[1], F_SETFL, O_NONBLOCK);
  pid_ = StartBound(argv, ends[1]);
  close(ends[1]);
  if (pid_ < 0 || !AwaitReady(ends[0])) Fail("the daemon does not start: " DAEMON);
  // The read end stays open: the daemon would otherwise get SIGPIPE.
}

Daemon::~Daemon() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace smolvm::bench
