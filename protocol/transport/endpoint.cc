#include "protocol/transport/endpoint.h"

#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace smolvm::transport {
namespace {

constexpr char kAccepted[] = "expected unix:PATH, vsock:CID:PORT, vsock:PORT or vhost-user:PATH";
// A guest's vsock lets no more than this be in flight towards the host; with the default of 256 KiB
// a bulk copy waits for a credit update every few packets.
constexpr uint64_t kVsockBufferBytes = 8ull << 20;
constexpr int kBacklog = 128;

bool Fail(std::string* error, const std::string& what, int code) {
  *error = what + ": " + strerror(code);
  return false;
}

bool ParseNumber(std::string_view text, uint32_t* out) {
  if (text.empty() || text.size() > 10) return false;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  if (value > UINT32_MAX) return false;
  *out = static_cast<uint32_t>(value);
  return true;
}

bool ParseVsock(std::string_view text, Endpoint* endpoint) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return ParseNumber(text, &endpoint->port);
  return ParseNumber(text.substr(0, colon), &endpoint->cid) &&
         ParseNumber(text.substr(colon + 1), &endpoint->port);
}

// An address of either family, with its length.
struct Address {
  union {
    sockaddr base;
    sockaddr_un un;
    sockaddr_vm vm;
  };
  socklen_t length = 0;
  int family = AF_UNSPEC;
};

bool UnixAddress(const std::string& path, Address* address, std::string* error) {
  std::memset(&address->un, 0, sizeof address->un);
  if (path.size() >= sizeof address->un.sun_path) {
    *error = "socket path is longer than " + std::to_string(sizeof address->un.sun_path - 1) +
             " bytes: " + path;
    return false;
  }
  address->un.sun_family = AF_UNIX;
  std::memcpy(address->un.sun_path, path.data(), path.size());
  address->length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  address->family = AF_UNIX;
  return true;
}

void VsockAddress(uint32_t cid, uint32_t port, Address* address) {
  std::memset(&address->vm, 0, sizeof address->vm);
  address->vm.svm_family = AF_VSOCK;
  address->vm.svm_cid = cid;
  address->vm.svm_port = port;
  address->length = sizeof address->vm;
  address->family = AF_VSOCK;
}

int OpenSocket(int family, std::string* error) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) Fail(error, family == AF_VSOCK ? "no vsock here" : "cannot make a socket", errno);
  return fd;
}

void GrowVsockBuffers(int fd) {
  // Failure is harmless: the default size works, slowly.
  setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &kVsockBufferBytes,
             sizeof kVsockBufferBytes);
  setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &kVsockBufferBytes, sizeof kVsockBufferBytes);
}

int64_t NowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// Waits for a connect that is under way; 0 or an errno.
int FinishConnect(int fd, int timeout_ms) {
  const int64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    const int64_t left = deadline - NowMs();
    if (left <= 0) return ETIMEDOUT;
    pollfd entry{fd, POLLOUT, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return errno;
    if (ready <= 0) continue;
    int code = 0;
    socklen_t length = sizeof code;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length);
    return code;
  }
}

// A Unix socket's connect never says "in progress": it waits for room in the listener's queue, for
// as long as the send timeout allows.
int ConnectUnix(int fd, const Address& address, int timeout_ms) {
  const int64_t deadline = NowMs() + timeout_ms;
  for (;;) {
    const int64_t left = deadline - NowMs();
    if (left <= 0) return ETIMEDOUT;
    const timeval limit{static_cast<time_t>(left / 1000),
                        static_cast<suseconds_t>(left % 1000 * 1000)};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, &address.base, address.length) == 0) break;
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
  const timeval none{};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
  return 0;
}

int ConnectVsock(int fd, const Address& address, int timeout_ms) {
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  int code = connect(fd, &address.base, address.length) == 0 ? 0 : errno;
  if (code == EINPROGRESS || code == EINTR) code = FinishConnect(fd, timeout_ms);
  fcntl(fd, F_SETFL, flags);
  return code;
}

// Whether somebody listens on the Unix socket at `address`.
bool IsServed(const Address& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;
  // A full queue answers EAGAIN: that is somebody.
  const bool served =
      connect(fd, &address.base, address.length) == 0 || errno == EAGAIN || errno == EINPROGRESS;
  close(fd);
  return served;
}

// Binds; a socket file left behind by a process that has gone is replaced. Anything else that has
// the name stays, and is an error.
bool BindUnix(int fd, const Address& address, const std::string& path, std::string* error) {
  if (bind(fd, &address.base, address.length) == 0) return true;
  if (errno != EADDRINUSE) return Fail(error, "cannot listen on " + path, errno);
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    *error = "cannot listen on " + path + ": a file that is not a socket has that name";
    return false;
  }
  if (IsServed(address)) {
    *error = "cannot listen on " + path + ": another process is listening there";
    return false;
  }
  unlink(path.c_str());
  if (bind(fd, &address.base, address.length) == 0) return true;
  return Fail(error, "cannot listen on " + path, errno);
}

}  // namespace

bool ParseEndpoint(std::string_view text, Endpoint* endpoint, std::string* error) {
  const size_t colon = text.find(':');
  const std::string_view scheme = text.substr(0, colon);
  const std::string_view rest =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  Endpoint parsed;
  bool good = !rest.empty() && rest.find('\0') == std::string_view::npos;
  if (scheme == "unix" || scheme == "vhost-user") {
    parsed.kind = scheme == "unix" ? Endpoint::Kind::kUnix : Endpoint::Kind::kVhostUser;
    parsed.path = std::string(rest);
  } else {
    parsed.kind = Endpoint::Kind::kVsock;
    good = good && scheme == "vsock" && ParseVsock(rest, &parsed);
  }
  if (!good) {
    *error = std::string(text);
    error->append(" is no endpoint: ").append(kAccepted);
    return false;
  }
  *endpoint = parsed;
  return true;
}

std::string ToString(const Endpoint& endpoint) {
  if (endpoint.kind == Endpoint::Kind::kUnix) return "unix:" + endpoint.path;
  if (endpoint.kind == Endpoint::Kind::kVhostUser) return "vhost-user:" + endpoint.path;
  return "vsock:" + std::to_string(endpoint.cid) + ":" + std::to_string(endpoint.port);
}

int Connect(const Endpoint& endpoint, int timeout_ms, std::string* error) {
  if (endpoint.kind == Endpoint::Kind::kVhostUser) {
    *error = "vhost-user endpoints can only be listened on";
    errno = EINVAL;
    return -1;
  }
  const bool local = endpoint.kind == Endpoint::Kind::kUnix;
  Address address;
  if (!local) {
    VsockAddress(endpoint.cid, endpoint.port, &address);
  } else if (!UnixAddress(endpoint.path, &address, error)) {
    errno = EINVAL;
    return -1;
  }
  const int fd = OpenSocket(address.family, error);
  if (fd < 0) return -1;
  if (!local) GrowVsockBuffers(fd);
  const int code =
      local ? ConnectUnix(fd, address, timeout_ms) : ConnectVsock(fd, address, timeout_ms);
  if (code == 0) return fd;
  close(fd);
  Fail(error, "cannot connect to " + ToString(endpoint), code);
  errno = code;
  return -1;
}

int Listen(const Endpoint& endpoint, std::string* error) {
  const bool local = endpoint.kind != Endpoint::Kind::kVsock;
  Address address;
  if (!local) {
    // Connections from any guest, whatever CID the host is known by there.
    VsockAddress(VMADDR_CID_ANY, endpoint.port, &address);
  } else if (!UnixAddress(endpoint.path, &address, error)) {
    return -1;
  }
  const int fd = OpenSocket(address.family, error);
  if (fd < 0) return -1;
  bool good;
  if (local) {
    good = BindUnix(fd, address, endpoint.path, error);
  } else {
    GrowVsockBuffers(fd);  // accepted sockets inherit it
    good = bind(fd, &address.base, address.length) == 0 ||
           Fail(error, "cannot listen on " + ToString(endpoint), errno);
  }
  if (good && listen(fd, kBacklog) != 0) {
    good = Fail(error, "cannot listen on " + ToString(endpoint), errno);
  }
  if (good) return fd;
  close(fd);
  return -1;
}

}  // namespace smolvm::transport
