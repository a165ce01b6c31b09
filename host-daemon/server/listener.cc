#include "host-daemon/server/listener.h"

#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "protocol/log/log.h"

namespace smolvm::server {

using boost::system::error_code;
using transport::Endpoint;

namespace {

// One endpoint's queue must not keep the others from being looked at.
constexpr int kAcceptsAtOnce = 64;
constexpr std::chrono::milliseconds kOutOfDescriptorsPause{100};

}  // namespace

Listener::Listener(boost::asio::io_context& io, const Endpoint& endpoint, Accepted accepted)
    : endpoint_(endpoint), accepted_(std::move(accepted)), socket_(io), pause_(io) {}

Listener::~Listener() { Stop(); }

bool Listener::Start(std::string* error) {
  const int fd = transport::Listen(endpoint_, error);
  if (fd < 0) return false;
  struct stat status {};
  if (endpoint_.kind == Endpoint::Kind::kUnix && stat(endpoint_.path.c_str(), &status) == 0) {
    file_ = {status.st_dev, status.st_ino};
  }
  socket_.assign(fd);
  socket_.non_blocking(true);
  Wait();
  return true;
}

void Listener::Stop() {
  if (!socket_.is_open()) return;
  error_code ignored;
  socket_.close(ignored);
  pause_.cancel();
  struct stat status {};
  if (file_.second != 0 && lstat(endpoint_.path.c_str(), &status) == 0 &&
      file_ == std::pair{status.st_dev, status.st_ino}) {
    unlink(endpoint_.path.c_str());
  }
}

void Listener::Wait() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const error_code& code) {
                       if (!code) AcceptSome();
                     });
}

void Listener::AcceptSome() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    const int fd = accept4(socket_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd >= 0) {
      accepted_(fd, PeerOf(fd));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
    // Others wait in the queue until some connection closes.
    log::Error("event=accept_failed listen={} reason={}", log::Quote(ToString(endpoint_)),
               log::Quote(strerror(errno)));
    pause_.expires_after(kOutOfDescriptorsPause);
    pause_.async_wait([this](const error_code& code) {
      if (!code) Wait();
    });
    return;
  }
  Wait();
}

Listener::Peer Listener::PeerOf(int fd) const {
  Peer peer{.from = "listen=" + log::Quote(ToString(endpoint_)), .name = "unknown", .cid = {}};
  if (endpoint_.kind == Endpoint::Kind::kUnix) {
    ucred credentials{};
    socklen_t length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0) {
      peer.from += fmt::format(" peer_pid={} peer_uid={}", credentials.pid, credentials.uid);
      peer.name = fmt::format("uid:{}", credentials.uid);
    }
  } else {
    sockaddr_vm address{};
    socklen_t length = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      peer.from += fmt::format(" peer_cid={}", address.svm_cid);
      peer.name = fmt::format("cid:{}", address.svm_cid);
      peer.cid = address.svm_cid;
    }
  }
  return peer;
}

}  // namespace smolvm::server
