#include "tests/conformance/remoting/proxy.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <stdexcept>

#include "protocol/wire/frame.h"

namespace smolvm::remoting {
namespace {

sockaddr_un Address(const std::string& path) {
  sockaddr_un address{AF_UNIX, {}};
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

bool ReadAll(int fd, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = recv(fd, to, size, 0);
    if (got <= 0) return false;
    to += got;
    size -= got;
  }
  return true;
}

bool WriteAll(int fd, const char* from, size_t size) {
  while (size > 0) {
    const ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    size -= sent;
  }
  return true;
}

// One frame without bulk, as `change` makes it.
template <typename Message>
bool PassOn(int from, int to, const std::function<void(Message&)>& change) {
  wire::FrameHeader header;
  if (!ReadAll(from, reinterpret_cast<char*>(&header), sizeof header)) return false;
  std::string args(header.args_length, '\0');
  Message message;
  if (!ReadAll(from, args.data(), args.size()) || !Decode(args, &message)) return false;
  if (change) change(message);
  std::string out(sizeof header, '\0');
  Encode(message, &out);
  header.args_length = static_cast<uint32_t>(out.size() - sizeof header);
  wire::StoreFrameHeader(header, out.data());
  return WriteAll(to, out.data(), out.size());
}

void PassBytes(int guest, int daemon) {
  std::vector<char> bytes(1 << 16);
  pollfd ends[2] = {{guest, POLLIN, 0}, {daemon, POLLIN, 0}};
  while (poll(ends, 2, -1) > 0) {
    for (int i = 0; i < 2; ++i) {
      if (!ends[i].revents) continue;
      const ssize_t got = recv(ends[i].fd, bytes.data(), bytes.size(), 0);
      if (got <= 0 || !WriteAll(ends[1 - i].fd, bytes.data(), got)) return;
    }
  }
}

}  // namespace

Proxy::Proxy(const std::string& listen_at, const std::string& upstream, Changes changes)
    : listener_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      upstream_(upstream),
      changes_(std::move(changes)) {
  const sockaddr_un address = Address(listen_at);
  if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener_, 4) != 0) {
    throw std::runtime_error("the proxy cannot listen");
  }
  thread_ = std::thread([this] { Serve(); });
}

Proxy::~Proxy() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  close(listener_);
}

void Proxy::Serve() {
  for (;;) {
    const int guest = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (guest < 0) return;
    Relay(guest);
    close(guest);
  }
}

void Proxy::Relay(int guest) {
  const int daemon = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = Address(upstream_);
  if (connect(daemon, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      PassOn<api::Hello>(guest, daemon, changes_.hello) &&
      PassOn<api::HelloReply>(daemon, guest, changes_.reply)) {
    PassBytes(guest, daemon);
  }
  close(daemon);
}

}  // namespace smolvm::remoting
