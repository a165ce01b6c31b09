#include "machine/agent/exec.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "machine/agent/command.h"

namespace smolvm::agent {
namespace {

using machine::Channel;
using machine::ExecRequest;
using machine::ExitKind;
using machine::ExitReport;
using machine::Frame;
using machine::FrameType;

constexpr int kRequestTimeoutMs = 60000;
// Beyond this much waiting for the launcher (or for the command's input) the other side is not
// read.
constexpr size_t kMaxPending = 1 << 20;
constexpr int kHangUpGraceMs = 2000;
// A pipe holds 1 MiB at most (pipe(7), pipe-max-size); more comes only from processes that live on.
constexpr size_t kMaxDrainChunks = 256;

off_t CudaLogSize() {
  struct stat status;
  return stat(machine::kGuestCudaLog, &status) == 0 ? status.st_size : 0;
}

// What to tell the user of a program that NVIDIA's own runtime library refused to run: the guest's
// libcuda noticed (event=nvidia_runtime) in what its log holds from `begin` on.
std::string RuntimeHint(off_t begin) {
  const UniqueFd log(open(machine::kGuestCudaLog, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string text(machine::kStreamChunk, '\0');
  const ssize_t n = pread(log.get(), text.data(), text.size(), begin);
  text.resize(n > 0 ? n : 0);
  if (text.find("event=nvidia_runtime") == std::string::npos) return {};
  return "the program brings NVIDIA's own CUDA runtime, which runs on NVIDIA's driver only; build "
         "it "
         "again with NVCC_APPEND_FLAGS='-cudart shared' (its source stays as it is)";
}

// Carries one command's streams. A state machine around poll(2).
class Session {
 public:
  Session(Channel* channel, Command command, bool tty)
      : channel_(channel), command_(std::move(command)), tty_(tty) {
    for (const int fd : {command_.in.get(), command_.out.get(), command_.err.get()}) {
      if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    }
    exited_.reset(syscall(SYS_pidfd_open, command_.pid, 0));
  }

  void Run() {
    // What came along with the request.
    while (std::optional<Frame> frame = channel_->Next()) Take(*frame);
    while (true) {
      if (!Step()) return HangUp();
      if (status_) break;
    }
    // What the command wrote before it ended is in the pipes already; what its own children write
    // later is not waited for.
    Drain(&command_.out, FrameType::kStdout);
    Drain(&command_.err, FrameType::kStderr);
    ExitReport report;
    report.kind = WIFSIGNALED(*status_) ? ExitKind::kSignalled : ExitKind::kExited;
    report.value = WIFSIGNALED(*status_) ? WTERMSIG(*status_) : WEXITSTATUS(*status_);
    if (*status_ != 0) report.message = RuntimeHint(cuda_log_begin_);
    channel_->Send(FrameType::kExit, EncodeExit(report));
  }

 private:
  // False when the launcher is gone.
  bool Step() {
    enum { kChannel, kIn, kOut, kErr, kExited, kCount };
    const bool may_read = channel_->queued() < kMaxPending;
    pollfd fds[kCount];
    fds[kChannel] = {channel_->fd(), 0, 0};
    if (input_.size() < kMaxPending) fds[kChannel].events |= POLLIN;
    if (channel_->queued() > 0) fds[kChannel].events |= POLLOUT;
    fds[kIn] = {input_.empty() ? -1 : command_.in.get(), POLLOUT, 0};
    fds[kOut] = {may_read ? command_.out.get() : -1, POLLIN, 0};
    fds[kErr] = {may_read ? command_.err.get() : -1, POLLIN, 0};
    fds[kExited] = {exited_.get(), POLLIN, 0};
    if (poll(fds, kCount, -1) < 0) return errno == EINTR;
    if (fds[kChannel].revents & (POLLIN | POLLHUP | POLLERR)) {
      if (!channel_->Receive()) return false;
      while (std::optional<Frame> frame = channel_->Next()) Take(*frame);
      if (channel_->broken()) return false;
    }
    if (fds[kIn].revents) WriteInput();
    if (fds[kOut].revents) Pump(&command_.out, FrameType::kStdout);
    if (fds[kErr].revents) Pump(&command_.err, FrameType::kStderr);
    if (fds[kExited].revents) {
      int status = 0;
      if (waitpid(command_.pid, &status, WNOHANG) == command_.pid) status_ = status;
    }
    return channel_->Flush();
  }

  void Take(const Frame& frame) {
    machine::FieldReader reader(frame.payload);
    switch (frame.type) {
      case FrameType::kStdin:
        if (frame.payload.empty()) {
          input_ended_ = true;
        } else if (command_.in.valid()) {
          input_ += frame.payload;
        }
        WriteInput();
        break;
      case FrameType::kSignal: {
        const uint32_t number = reader.U32();
        if (reader.Complete() && number > 0 && number < 65) kill(-command_.pid, number);
        break;
      }
      case FrameType::kWinsize: {
        winsize size{};
        size.ws_row = reader.U32();
        size.ws_col = reader.U32();
        if (reader.Complete()) ioctl(command_.out.get(), TIOCSWINSZ, &size);
        break;
      }
      default:
        break;
    }
  }

  void WriteInput() {
    while (!input_.empty() && command_.in.valid()) {
      const ssize_t n = write(command_.in.get(), input_.data(), input_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n < 0) {  // the command reads no more
        input_.clear();
        command_.in.reset();
        return;
      }
      input_.erase(0, n);
    }
    // A terminal has no end of input; ^D travels as a character.
    if (input_ended_ && input_.empty() && !tty_) command_.in.reset();
  }

  // Queues what one read gives. False when there is nothing (now, or for ever).
  bool Pump(UniqueFd* stream, FrameType type) {
    char buffer[machine::kStreamChunk];
    const ssize_t n = read(stream->get(), buffer, sizeof buffer);
    if (n > 0) {
      channel_->Queue(type, {buffer, static_cast<size_t>(n)});
      return true;
    }
    if (n < 0 && errno == EINTR) return true;
    if (n == 0 || errno != EAGAIN) stream->reset();
    return false;
  }

  void Drain(UniqueFd* stream, FrameType type) {
    for (size_t chunks = 0; chunks < kMaxDrainChunks && stream->valid(); ++chunks) {
      if (!Pump(stream, type) || !channel_->SendQueued()) return;
    }
  }

  void HangUp() {
    kill(-command_.pid, SIGHUP);
    pollfd entry{exited_.get(), POLLIN, 0};
    poll(&entry, 1, kHangUpGraceMs);
    kill(-command_.pid, SIGKILL);
    waitpid(command_.pid, nullptr, 0);
  }

  Channel* channel_;
  Command command_;
  const bool tty_;
  UniqueFd exited_;
  std::string input_;
  bool input_ended_ = false;
  std::optional<int> status_;
  const off_t cuda_log_begin_ = CudaLogSize();
};

}  // namespace

void ServeExec(const Endpoint& endpoint, const machine::Hello& hello) {
  Channel channel(Connect(endpoint, hello), machine::kMaxFrameFromHost);
  if (channel.fd() < 0) return;
  const std::optional<Frame> first = channel.WaitFrame(kRequestTimeoutMs);
  if (!first || first->type != FrameType::kExec) return;
  const std::optional<ExecRequest> request = machine::DecodeExec(first->payload);
  if (!request) return;
  Command command;
  ExitReport failure;
  if (!StartCommand(*request, &command, &failure)) {
    channel.Send(FrameType::kExit, EncodeExit(failure));
    return;
  }
  Session(&channel, std::move(command), request->tty).Run();
}

}  // namespace smolvm::agent
