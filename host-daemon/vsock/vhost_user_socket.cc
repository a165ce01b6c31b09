#include "host-daemon/vsock/vhost_user_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace smolvm::vsock {
namespace {

// Header: request, flags, size, 32 bits each (vhost-user: "Header").
constexpr uint32_t kVersion = 1;
constexpr uint32_t kVersionMask = 3;
constexpr uint32_t kFlagReply = 4;
constexpr uint32_t kFlagNeedReply = 8;

// The largest known to us is a memory table of eight regions (264 bytes) or a configuration (268).
constexpr uint32_t kMaxPayload = 512;

void CollectFds(const msghdr& message, std::vector<UniqueFd>* fds) {
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(c))) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      fds->emplace_back(fd);
    }
  }
}

}  // namespace

MessageReader::Result MessageReader::Receive(int socket, uint8_t* to, size_t want, size_t* have,
                                             std::string* error) {
  while (*have < want) {
    alignas(cmsghdr) char control[CMSG_SPACE(kMaxMemoryRegions * sizeof(int))];
    iovec iov = {to + *have, want - *have};
    msghdr message{};
    message.msg_iov = &iov;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Result::kNothingYet;
      *error = fmt::format("recvmsg: {}", strerror(errno));
      return Result::kError;
    }
    CollectFds(message, &fds_);
    if ((message.msg_flags & MSG_CTRUNC) || fds_.size() > kMaxMemoryRegions) {
      *error = "too many descriptors in one message";
      return Result::kError;
    }
    if (n == 0) return Result::kClosed;
    *have += static_cast<size_t>(n);
  }
  return Result::kMessage;
}

MessageReader::Result MessageReader::Read(int socket, VhostUserMessage* message,
                                          std::string* error) {
  Result result = Receive(socket, header_, sizeof(header_), &header_have_, error);
  if (result != Result::kMessage) return result;
  uint32_t fields[3];
  std::memcpy(fields, header_, sizeof(fields));
  const auto [request, flags, size] = fields;
  if ((flags & kVersionMask) != kVersion || (flags & kFlagReply) || size > kMaxPayload) {
    *error = fmt::format("bad header: request {}, flags {:#x}, size {}", request, flags, size);
    return Result::kError;
  }
  payload_.resize(size);
  result = Receive(socket, payload_.data(), size, &payload_have_, error);
  if (result != Result::kMessage) return result;
  message->request = request;
  message->need_reply = flags & kFlagNeedReply;
  message->payload = std::exchange(payload_, {});
  message->fds = std::exchange(fds_, {});
  header_have_ = payload_have_ = 0;
  return Result::kMessage;
}

bool SendReply(int socket, uint32_t request, const std::vector<uint8_t>& payload) {
  const uint32_t header[3] = {request, kVersion | kFlagReply,
                              static_cast<uint32_t>(payload.size())};
  std::vector<uint8_t> bytes(sizeof(header) + payload.size());
  std::memcpy(bytes.data(), header, sizeof(header));
  if (!payload.empty()) std::memcpy(bytes.data() + sizeof(header), payload.data(), payload.size());
  const ssize_t n = send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return n == static_cast<ssize_t>(bytes.size());
}

}  // namespace smolvm::vsock
