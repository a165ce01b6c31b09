#include "host-daemon/server/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "host-daemon/worker/control.h"

namespace smolvm::server {
namespace {

int Spawn(const std::string& path, const std::vector<std::string>& arguments, int control,
          pid_t* pid) {
  std::vector<char*> argv{const_cast<char*>(path.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, control, worker::kControlFd);
  // Ours are close-on-exec, but whoever started the daemon may have left others open.
  posix_spawn_file_actions_addclosefrom_np(&files, worker::kControlFd + 1);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int code = posix_spawn(pid, path.c_str(), &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return code;
}

}  // namespace

bool StartChild(const std::string& path, const std::vector<std::string>& arguments, Child* child,
                std::string* error) {
  int ends[2];
  int code = 0;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    code = errno;
  } else {
    code = Spawn(path, arguments, ends[1], &child->pid);
    close(ends[1]);
    if (code != 0) close(ends[0]);
  }
  if (code != 0) {
    *error = "cannot start " + path + ": " + strerror(code);
    return false;
  }
  child->control = ends[0];
  return true;
}

std::string DescribeExit(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit={}", WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  return fmt::format("signal={} signal_name={}", WTERMSIG(status), name == nullptr ? "" : name);
}

}  // namespace smolvm::server
