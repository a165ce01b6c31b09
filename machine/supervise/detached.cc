#include "machine/supervise/detached.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>

#include "machine/wire/channel.h"
#include "machine/wire/messages.h"

namespace smolvm::machine {
namespace {

constexpr size_t kMaxLog = 16 << 20;

void Append(int log, size_t* written, std::string_view text) {
  if (*written >= kMaxLog) return;
  text = text.substr(0, kMaxLog - *written);
  *written += text.size();
  while (!text.empty()) {
    const ssize_t n = write(log, text.data(), text.size());
    if (n <= 0) return;  // a full disk must not stop the command
    text.remove_prefix(n);
  }
}

void CarryOutput(const MachineRecord& record, Channel* channel, int log) {
  ExecRequest request;
  request.argv = record.command;
  request.env = record.env;
  request.workdir = record.workdir;
  request.make_workdir = true;
  request.user = record.user;
  if (!channel->Send(FrameType::kExec, EncodeExec(request))) return;
  size_t written = 0;
  while (const auto frame = channel->WaitFrame(-1)) {
    if (frame->type == FrameType::kStdout || frame->type == FrameType::kStderr) {
      Append(log, &written, frame->payload);
    } else if (frame->type == FrameType::kExit) {
      const auto report = DecodeExit(frame->payload);
      if (report && !report->message.empty()) Append(log, &written, report->message + "\n");
      return;
    }
  }
}

}  // namespace

pid_t StartDetachedCommand(const MachineRecord& record, UniqueFd fd,
                           const std::filesystem::path& log) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  Channel channel(std::move(fd), kMaxFrameFromGuest);
  CarryOutput(record, &channel, file);
  _exit(0);
}

}  // namespace smolvm::machine
