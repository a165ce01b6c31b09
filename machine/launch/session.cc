#include "machine/launch/session.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "machine/launch/terminal.h"
#include "machine/util/failure.h"
#include "machine/util/interrupt.h"
#include "machine/wire/channel.h"

namespace smolvm::machine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 200;
constexpr size_t kMaxPending = 1 << 20;
// How long a command may take to obey a signal, or to go at the end of its time.
constexpr std::chrono::seconds kGrace{10};

// Writes to a stream of this process, waiting as long as it takes. A reader that has gone is no
// error (false); a full disk is.
bool WriteOut(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = write(fd, data.data(), data.size());
    if (n >= 0) {
      data.remove_prefix(n);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EPIPE) return false;
    if (errno != EAGAIN) Fail("the command's output cannot be written: {}", ErrnoText());
    pollfd entry{fd, POLLOUT, 0};
    poll(&entry, 1, -1);
  }
  return true;
}

class Session {
 public:
  Session(UniqueFd agent, const ExecRequest& request, uint64_t timeout_ms)
      : channel_(std::move(agent), kMaxFrameFromGuest), stdin_open_(request.stdin_open) {
    if (timeout_ms > 0) deadline_ = Clock::now() + std::chrono::milliseconds(timeout_ms);
    channel_.Queue(FrameType::kExec, EncodeExec(request));
  }

  SessionEnd Run(const std::function<void()>& tick) {
    while (!report_) {
      tick();
      if (!Step()) {
        end_.lost = !report_.has_value();
        break;
      }
      if (end_.forced) break;
    }
    if (report_) end_.report = *report_;
    return end_;
  }

 private:
  // False when the machine is gone.
  bool Step() {
    const bool may_read = stdin_open_ && channel_.queued() < kMaxPending;
    pollfd fds[2] = {{channel_.fd(), POLLIN, 0}, {may_read ? STDIN_FILENO : -1, POLLIN, 0}};
    if (channel_.queued() > 0) fds[0].events |= POLLOUT;
    if (poll(fds, 2, kTickMs) < 0 && errno != EINTR) Fail("poll: {}", ErrnoText());
    PassSignals();
    PassSize();
    WatchTime();
    if (fds[1].revents != 0) PassInput();
    bool alive = true;
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR)) alive = channel_.Receive();
    while (const std::optional<Frame> frame = channel_.Next()) Take(*frame);
    return alive && !channel_.broken() && channel_.Flush();
  }

  void Take(const Frame& frame) {
    if (frame.type == FrameType::kStdout && out_open_) {
      out_open_ = WriteOut(STDOUT_FILENO, frame.payload);
    } else if (frame.type == FrameType::kStderr && err_open_) {
      err_open_ = WriteOut(STDERR_FILENO, frame.payload);
    } else if (frame.type == FrameType::kExit) {
      report_ = DecodeExit(frame.payload);
      if (!report_) Fail("the machine's agent sent a bad exit report");
    }
    // Nobody reads the command's output any more: what a pipe would tell it.
    if (!out_open_ && !told_closed_) {
      told_closed_ = true;
      SendSignal(SIGPIPE);
    }
  }

  void PassInput() {
    char buffer[kStreamChunk];
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) stdin_open_ = false;
    channel_.Queue(FrameType::kStdin, {buffer, static_cast<size_t>(n > 0 ? n : 0)});
  }

  void PassSignals() {
    const int count = InterruptCount();
    if (count == seen_signals_) return;
    if (seen_signals_ > 0) {
      end_.forced = true;  // asked twice
      return;
    }
    seen_signals_ = count;
    SendSignal(LastInterrupt());
    // Ctrl-C may mean something else to the command; a second one ends the machine.
    if (LastInterrupt() != SIGINT) give_up_ = Clock::now() + kGrace;
  }

  void PassSize() {
    const TerminalSize size = AskTerminalSize();
    if (size == size_ || size.rows == 0) return;
    const bool first = size_.rows == 0;
    size_ = size;
    if (first) return;  // the request had it
    std::string payload;
    PutU32(&payload, size.rows);
    PutU32(&payload, size.columns);
    channel_.Queue(FrameType::kWinsize, payload);
  }

  void WatchTime() {
    const auto now = Clock::now();
    if (deadline_ && now >= *deadline_) {
      deadline_.reset();
      end_.timed_out = true;
      SendSignal(SIGTERM);
      give_up_ = now + kGrace;
    }
    if (give_up_ && now >= *give_up_) end_.forced = true;
  }

  void SendSignal(int number) {
    std::string payload;
    PutU32(&payload, number);
    channel_.Queue(FrameType::kSignal, payload);
  }

  Channel channel_;
  bool stdin_open_;
  bool out_open_ = true, err_open_ = true, told_closed_ = false;
  int seen_signals_ = 0;
  TerminalSize size_;
  std::optional<Clock::time_point> deadline_, give_up_;
  std::optional<ExitReport> report_;
  SessionEnd end_;
};

}  // namespace

SessionEnd RunSession(UniqueFd agent, ExecRequest request, uint64_t timeout_ms,
                      const std::function<void()>& tick) {
  std::unique_ptr<RawTerminal> raw;
  if (request.tty) {
    const TerminalSize size = AskTerminalSize();
    request.rows = size.rows;
    request.columns = size.columns;
    if (request.stdin_open) raw = std::make_unique<RawTerminal>();
  }
  return Session(std::move(agent), request, timeout_ms).Run(tick);
}

}  // namespace smolvm::machine
