#include "container/launch.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

#include "container/process.h"
#include "protocol/base/child.h"

namespace smolvm::gpu {
namespace {

constexpr std::array<int, 4> kForwarded = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// The child that signals go to; 0 when there is none.
std::atomic<pid_t> signal_target = 0;
static_assert(std::atomic<pid_t>::is_always_lock_free, "used in a signal handler");

void Forward(int signal, siginfo_t* info, void*) {
  // The terminal's own signals have reached the child already, which shares our process group.
  const pid_t child = signal_target.load(std::memory_order_relaxed);
  if (child > 0 && info->si_code <= 0) kill(child, signal);  // not SI_KERNEL: sent by a process
}

// Forwards signals for its lifetime, and holds them back until there is a child to forward them to.
class SignalForwarding {
 public:
  SignalForwarding() {
    sigset_t forwarded;
    sigemptyset(&forwarded);
    for (int signal : kForwarded) sigaddset(&forwarded, signal);
    pthread_sigmask(SIG_BLOCK, &forwarded, &mask_before_);
    struct sigaction action = {};
    action.sa_sigaction = Forward;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    for (std::size_t i = 0; i < kForwarded.size(); ++i) {
      sigaction(kForwarded[i], &action, &before_[i]);
    }
  }
  ~SignalForwarding() {
    signal_target = 0;
    RestoreActions();
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  SignalForwarding(const SignalForwarding&) = delete;
  SignalForwarding& operator=(const SignalForwarding&) = delete;

  void To(pid_t child) {
    signal_target = child;
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  }

  // What the child has: its part runs between the child's start and its program.
  void RestoreActions() const {
    for (std::size_t i = 0; i < kForwarded.size(); ++i) {
      sigaction(kForwarded[i], &before_[i], nullptr);
    }
  }
  const sigset_t* mask_before() const { return &mask_before_; }

 private:
  std::array<struct sigaction, kForwarded.size()> before_ = {};
  sigset_t mask_before_ = {};
};

void WriteAll(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t n = write(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads our stderr; the program goes on
    bytes += n;
    size -= static_cast<std::size_t>(n);
  }
}

// Passes on what there is; false at the end of the stream.
bool PassOn(int fd, std::string& last) {
  char block[16 * 1024];
  while (true) {
    const ssize_t n = read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    WriteAll(STDERR_FILENO, block, static_cast<std::size_t>(n));
    last.append(block, static_cast<std::size_t>(n));
    if (last.size() > kKeptStderr) last.erase(0, last.size() - kKeptStderr);
  }
}

int Watch(pid_t child, int fd, std::string& last) {
  const ChildEnd end(child);
  bool open = true;
  int status = 0;
  // A detached container's monitor may keep the pipe open: the program's own end is what counts.
  while (waitpid(child, &status, WNOHANG) != child) {
    if (end.WaitWith(open ? fd : -1, -1)) open = PassOn(fd, last);
  }
  if (open) PassOn(fd, last);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

LaunchResult LaunchAndWatch(const std::vector<std::string>& argv) {
  int errors[2];
  if (pipe2(errors, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category());
  SignalForwarding forwarding;
  int error = 0;
  const pid_t child = StartChild(argv[0], argv,
                                 {.input = ChildOptions::kInherit,
                                  .error = errors[1],
                                  .default_signals = false,
                                  .mask = forwarding.mask_before(),
                                  .prepare = [&] { forwarding.RestoreActions(); }},
                                 &error);
  close(errors[1]);
  if (child < 0) {
    close(errors[0]);
    throw std::system_error(error, std::generic_category(), "cannot run " + argv[0]);
  }
  forwarding.To(child);
  LaunchResult result;
  fcntl(errors[0], F_SETFL, O_NONBLOCK);
  result.status = Watch(child, errors[0], result.last_stderr);
  close(errors[0]);
  return result;
}

}  // namespace smolvm::gpu
