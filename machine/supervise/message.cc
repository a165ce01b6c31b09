#include "machine/supervise/message.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "machine/util/failure.h"

namespace smolvm::machine {
namespace {

constexpr size_t kMaxMessage = 64 << 10;

// A socket's path may have 107 bytes; the folder is therefore named through /proc.
sockaddr_un AddressIn(const UniqueFd& folder, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = fmt::format("/proc/self/fd/{}/{}", folder.get(), name);
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof address.sun_path - 1));
  return address;
}

}  // namespace

std::string Message::Text(const char* key) const {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

bool SendMessage(int socket, const nlohmann::json& json, int fd) {
  std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  iovec part{text.data(), text.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(item), &fd, sizeof fd);
  }
  return sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

std::optional<Message> ReceiveMessage(int socket) {
  while (true) {
    std::string text(kMaxMessage, '\0');
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    Message message;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr;
         item = CMSG_NXTHDR(&header, item)) {
      if (item->cmsg_type != SCM_RIGHTS || item->cmsg_len != CMSG_LEN(sizeof(int))) continue;
      int fd;
      std::memcpy(&fd, CMSG_DATA(item), sizeof fd);
      message.fd.reset(fd);
    }
    text.resize(n);
    message.json = nlohmann::json::parse(text, nullptr, false);
    if (message.json.is_object()) return message;
  }
}

std::optional<Message> ReceiveMessage(int socket, int timeout_ms, bool* timed_out) {
  pollfd entry{socket, POLLIN, 0};
  *timed_out = poll(&entry, 1, timeout_ms) <= 0;
  return *timed_out ? std::nullopt : ReceiveMessage(socket);
}

UniqueFd ListenIn(const std::string& folder, const std::string& name, int type) {
  const UniqueFd at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  unlink((folder + "/" + name).c_str());
  const sockaddr_un address = AddressIn(at, name);
  if (!fd.valid() ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), 128) != 0) {
    Fail("cannot listen at {}/{}: {}", folder, name, ErrnoText());
  }
  return fd;
}

UniqueFd ConnectIn(const std::string& folder, const std::string& name, int type) {
  const UniqueFd at(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressIn(at, name);
  if (!fd.valid() ||
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  return fd;
}

}  // namespace smolvm::machine
