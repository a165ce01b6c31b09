#include "host-daemon/server/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "host-daemon/worker/control.h"
#include "protocol/base/child.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::server {
bool StartChild(const std::string& path, const std::vector<std::string>& arguments, Child* child,
                std::string* error) {
  int ends[2], log_ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    *error = "cannot start " + path + ": " + strerror(errno);
    return false;
  }
  UniqueFd ours(ends[0]), theirs(ends[1]);
  if (pipe2(log_ends, O_CLOEXEC) != 0) {
    *error = "cannot start " + path + ": " + strerror(errno);
    return false;
  }
  UniqueFd log(log_ends[0]), its_log(log_ends[1]);
  std::vector<std::string> argv{path};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  int code = 0;
  child->pid = smolvm::StartChild(path, argv,
                                  {.output = its_log.get(),
                                   .error = its_log.get(),
                                   .pass = theirs.get(),
                                   .pass_as = worker::kControlFd,
                                   .own_group = true},
                                  &code);
  if (child->pid < 0) {
    *error = "cannot start " + path + ": " + strerror(code);
    return false;
  }
  child->control = ours.release();
  child->log = log.release();
  return true;
}

std::string DescribeExit(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit={}", WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("signal={} signal_name={}", WTERMSIG(status), name == nullptr ? "" : name);
}

}  // namespace smolvm::server
