#include "machine/supervise/share_servers.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "machine/share/server.h"

namespace smolvm::machine {
namespace {

// What a share's server may still do with requests of a guest that has gone.
constexpr std::chrono::seconds kGrace{2};

}  // namespace

bool ShareServers::Start(size_t index, const Share& share, UniqueFd fd) {
  if (!connections_.Allow()) return false;
  if (const auto found = pids_.find(index); found != pids_.end()) {
    kill(found->second, SIGKILL);
    waitpid(found->second, nullptr, 0);
    pids_.erase(found);
  }
  const pid_t pid = fork();
  if (pid > 0) pids_[index] = pid;
  if (pid != 0) return pid > 0;
  // The supervisor's own (sockets, the lock of the machine) are not for what parses the guest's
  // messages; and a guest's end of a connection would keep the server of that one alive.
  const auto own = static_cast<unsigned>(fd.get());
  if (own > 3) close_range(3, own - 1, 0);
  close_range(own + 1, ~0u, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "smolvm-share");
  _exit(ServeShare(fd.get(), share.host, share.read_only));
}

void ShareServers::WasCollected(pid_t pid) {
  std::erase_if(pids_, [pid](const auto& entry) { return entry.second == pid; });
}

void ShareServers::End() {
  const auto give_up = std::chrono::steady_clock::now() + kGrace;
  const auto collect = [this] {
    std::erase_if(pids_,
                  [](const auto& entry) { return waitpid(entry.second, nullptr, WNOHANG) != 0; });
    return pids_.empty();
  };
  while (!collect() && std::chrono::steady_clock::now() < give_up) usleep(5000);
  for (const auto& [index, pid] : pids_) kill(pid, SIGKILL);
  for (const auto& [index, pid] : pids_) waitpid(pid, nullptr, 0);
  pids_.clear();
}

}  // namespace smolvm::machine
