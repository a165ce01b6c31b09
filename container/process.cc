#include "container/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "protocol/base/child.h"

namespace smolvm::gpu {
namespace {

using Clock = std::chrono::steady_clock;

// Reads what is there. False at the end of the stream, or when the limit is passed.
bool Drain(int fd, std::size_t limit, ProgramOutput& out) {
  char block[16 * 1024];
  while (true) {
    const ssize_t n = read(fd, block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    if (static_cast<std::size_t>(n) > limit - out.text.size()) {
      out.end = ProgramOutput::End::kTooMuch;
      return false;
    }
    out.text.append(block, static_cast<std::size_t>(n));
  }
}

// Waits until the child has ended (true), or `deadline` passes or it writes too much (false),
// collecting its output meanwhile.
bool AwaitEnd(pid_t child, int fd, Clock::time_point deadline, std::size_t limit,
              ProgramOutput& out, int& wait_status) {
  const ChildEnd end(child);
  bool open = true;
  while (true) {
    if (waitpid(child, &wait_status, WNOHANG) == child) {
      if (open) Drain(fd, limit, out);
      return true;
    }
    if (out.end == ProgramOutput::End::kTooMuch) return false;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      out.end = ProgramOutput::End::kTimedOut;
      return false;
    }
    if (end.WaitWith(open ? fd : -1, static_cast<int>(left.count()))) open = Drain(fd, limit, out);
  }
}

ProgramOutput CouldNotStart(int error) {
  ProgramOutput out;
  out.end = error == ENOENT ? ProgramOutput::End::kNotFound : ProgramOutput::End::kFailed;
  out.status = error;
  return out;
}

}  // namespace

ChildEnd::ChildEnd(pid_t child) : fd_(static_cast<int>(syscall(SYS_pidfd_open, child, 0))) {}

ChildEnd::~ChildEnd() {
  if (fd_ >= 0) close(fd_);
}

bool ChildEnd::WaitWith(int fd, int timeout_ms) const {
  // Kernels before 5.3 and some sandboxes have no pidfd: look again every few milliseconds.
  constexpr int kLookAgainMs = 5;
  const bool capped = fd_ < 0 && (timeout_ms < 0 || timeout_ms > kLookAgainMs);
  pollfd both[] = {{fd, POLLIN, 0}, {fd_, POLLIN, 0}};  // poll ignores negative descriptors
  return poll(both, 2, capped ? kLookAgainMs : timeout_ms) > 0 && both[0].revents != 0;
}

ProgramOutput RunForOutput(const std::vector<std::string>& argv, std::chrono::milliseconds limit,
                           std::size_t limit_bytes) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return CouldNotStart(errno);
  int error = 0;
  const pid_t child = StartChild(
      argv[0], argv, {.output = pipe[1], .error = ChildOptions::kNull, .own_group = true}, &error);
  close(pipe[1]);
  ProgramOutput out;
  int wait_status = 0;
  fcntl(pipe[0], F_SETFL, O_NONBLOCK);
  if (child < 0) {
    out = CouldNotStart(error);
  } else if (!AwaitEnd(child, pipe[0], Clock::now() + limit, limit_bytes, out, wait_status)) {
    kill(-child, SIGKILL);
    waitpid(child, &wait_status, 0);
  } else if (out.end != ProgramOutput::End::kTooMuch) {
    const bool exited = WIFEXITED(wait_status);
    out.end = exited ? ProgramOutput::End::kExited : ProgramOutput::End::kSignalled;
    out.status = exited ? WEXITSTATUS(wait_status) : WTERMSIG(wait_status);
  }
  close(pipe[0]);
  return out;
}

}  // namespace smolvm::gpu
