#include "host-daemon/vsock/broker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "host-daemon/sandbox/sandbox.h"
#include "host-daemon/worker/control.h"

namespace smolvm::vsock {
namespace {

using worker::ControlHeader;
using worker::ControlMessage;
using worker::ControlResult;
using worker::ControlType;

// A connected socket, or -1. A Unix socket connects at once or, with a full backlog, not at all.
int ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    errno = path.empty() ? ENOENT : ENAMETOOLONG;
    return -1;
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return -1;
  return fd.release();
}

// Until the device is gone. A port travels as the header's session; the answer is a descriptor, or
// an errno in the same place.
[[noreturn]] void Serve(int socket, const std::function<std::string(uint32_t)>& path_of) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGINT, SIG_IGN);  // the device's to obey
  signal(SIGTERM, SIG_IGN);
  // Whoever reads what the device says must not wait for this process.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  std::string error;
  const bool confined = sandbox::EnterSandbox({.connects = true}, &error);
  const ControlHeader state{.type = confined ? ControlType::kReady : ControlType::kFailed};
  worker::SendControl(socket, state, error, -1, true);
  ControlMessage message;
  while (confined && worker::ReceiveControl(socket, true, &message) == ControlResult::kGot) {
    if (message.fd >= 0) close(message.fd);
    const uint64_t port = message.header.session;
    const UniqueFd fd(port <= UINT32_MAX ? ConnectUnix(path_of(static_cast<uint32_t>(port))) : -1);
    const ControlHeader answer{.type = ControlType::kConnection,
                               .session = fd ? 0 : static_cast<uint64_t>(errno)};
    if (!worker::SendControl(socket, answer, "", fd.get(), true)) break;
  }
  _exit(0);
}

}  // namespace

bool Broker::Start(std::function<std::string(uint32_t)> path_of, std::string* error) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    *error = std::string("no sockets for the broker: ") + strerror(errno);
    return false;
  }
  socket_.reset(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    socket_.reset();
    Serve(theirs.get(), path_of);
  }
  if (child < 0) {
    *error = std::string("the broker cannot be started: ") + strerror(errno);
    return false;
  }
  ControlMessage message;
  if (worker::ReceiveControl(socket_.get(), true, &message) == ControlResult::kGot &&
      message.header.type == ControlType::kReady) {
    return true;
  }
  *error = message.text.empty() ? "the broker ended" : message.text;
  return false;
}

int Broker::Connect(uint32_t port) {
  ControlMessage message;
  if (!worker::SendControl(socket_.get(), {.type = ControlType::kConnection, .session = port}, "",
                           -1, true) ||
      worker::ReceiveControl(socket_.get(), true, &message) != ControlResult::kGot) {
    errno = EPIPE;
    return -1;
  }
  if (message.fd < 0) errno = static_cast<int>(message.header.session);
  return message.fd;
}

}  // namespace smolvm::vsock
