#include "host-daemon/server/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "protocol/log/log.h"

namespace smolvm::server {

void NotifyManager(std::string_view state) {
  const char* path = getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = strlen(path);
  if (length >= sizeof address.sun_path) {
    log::Warn("event=notify_failed reason={}", log::Quote("NOTIFY_SOCKET is too long"));
    return;
  }
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // a name outside the file system
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (fd < 0 || sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                       reinterpret_cast<const sockaddr*>(&address), size) < 0) {
    log::Warn("event=notify_failed reason={}", log::Quote(strerror(errno)));
  }
  if (fd >= 0) close(fd);
}

}  // namespace smolvm::server
