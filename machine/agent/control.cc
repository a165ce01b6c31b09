#include "machine/agent/control.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "machine/agent/exec.h"

namespace smolvm::agent {
namespace {

using machine::Frame;
using machine::FrameType;

constexpr int kStopGraceMs = 3000;

void StartExec(const ControlOptions& options, const std::string& token) {
  if (fork() != 0) return;
  // Programs that eat the machine's memory must not take the one that reports on them.
  std::ofstream("/proc/self/oom_score_adj") << "-1000";
  signal(SIGPIPE, SIG_IGN);
  ServeExec(options.endpoint, {options.secret, "exec", token});
  _exit(0);
}

void CollectDead() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

// The processes that are to end. Kernel threads are listed too; signals do nothing to them.
std::vector<pid_t> OtherProcesses(const ControlOptions& options) {
  std::vector<pid_t> found;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    const auto& keep = options.carriers;
    if (pid > 1 && pid != getpid() && std::find(keep.begin(), keep.end(), pid) == keep.end()) {
      found.push_back(pid);
    }
  }
  closedir(folder);
  return found;
}

}  // namespace

bool ServeControl(const ControlOptions& options, machine::Channel* control) {
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_signal, nullptr);
  const UniqueFd signals(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!control->Send(FrameType::kReady, {})) return false;
  while (true) {
    pollfd fds[2] = {{control->fd(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return false;
    if (fds[1].revents) {
      signalfd_siginfo info;
      while (read(signals.get(), &info, sizeof info) == sizeof info) {
      }
      CollectDead();
    }
    if (!fds[0].revents) continue;
    if (!control->Receive()) return false;
    while (const std::optional<Frame> frame = control->Next()) {
      if (frame->type == FrameType::kPowerOff) return true;
      machine::FieldReader reader(frame->payload);
      const std::string token = reader.String();
      if (frame->type == FrameType::kOpen && reader.Complete()) StartExec(options, token);
    }
    if (control->broken()) return false;
  }
}

void StopProcesses(const ControlOptions& options) {
  if (options.persistent) {
    for (const pid_t pid : OtherProcesses(options)) kill(pid, SIGTERM);
    for (int waited = 0; waited < kStopGraceMs; waited += 50) {
      CollectDead();
      // Of user processes only those that are not ours to keep are children or have a command line.
      const auto left = OtherProcesses(options);
      const bool any = std::any_of(left.begin(), left.end(), [](pid_t pid) {
        std::ifstream line("/proc/" + std::to_string(pid) + "/cmdline");
        return line.peek() != std::ifstream::traits_type::eof();
      });
      if (!any) break;
      usleep(50000);
    }
  }
  for (const pid_t pid : OtherProcesses(options)) kill(pid, SIGKILL);
  sync();
}

}  // namespace smolvm::agent
