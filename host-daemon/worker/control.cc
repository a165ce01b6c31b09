#include "host-daemon/worker/control.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace smolvm::worker {
namespace {

constexpr size_t kMaxTextBytes = kMaxHelloBytes;

// Room for one descriptor; a peer that sends more has the rest closed by the kernel (MSG_CTRUNC).
union FdSpace {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};

int TakeFd(const msghdr& message) {
  const cmsghdr* part = CMSG_FIRSTHDR(&message);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
      part->cmsg_len < CMSG_LEN(sizeof(int))) {
    return -1;
  }
  int fd;
  std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
  return fd;
}

}  // namespace

bool SendControl(int socket, const ControlHeader& header, const std::string& text, int fd,
                 bool wait) {
  iovec parts[] = {{const_cast<ControlHeader*>(&header), sizeof header},
                   {const_cast<char*>(text.data()), text.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  FdSpace space{};
  if (fd >= 0) {
    message.msg_control = space.bytes;
    message.msg_controllen = sizeof space.bytes;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

ControlResult ReceiveControl(int socket, bool wait, ControlMessage* message) {
  message->text.resize(kMaxTextBytes);
  message->fd = -1;
  iovec parts[] = {{&message->header, sizeof message->header},
                   {message->text.data(), message->text.size()}};
  msghdr raw{};
  raw.msg_iov = parts;
  raw.msg_iovlen = 2;
  FdSpace space{};
  raw.msg_control = space.bytes;
  raw.msg_controllen = sizeof space.bytes;
  ssize_t got;
  do {
    got = recvmsg(socket, &raw, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got < 0 && !wait && (errno == EAGAIN || errno == EWOULDBLOCK)) return ControlResult::kNothing;
  if (got <= 0) return ControlResult::kClosed;
  message->fd = TakeFd(raw);
  if (static_cast<size_t>(got) < sizeof message->header || (raw.msg_flags & MSG_TRUNC) != 0) {
    if (message->fd >= 0) close(message->fd);
    message->fd = -1;
    return ControlResult::kClosed;
  }
  message->text.resize(static_cast<size_t>(got) - sizeof message->header);
  return ControlResult::kGot;
}

}  // namespace smolvm::worker
