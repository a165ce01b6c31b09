#include "tests/bench/remoting/floors.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "tests/bench/remoting/cuda.h"

namespace smolvm::bench {
namespace {

// As large as a frame header with few arguments.
struct Message {
  enum class Kind : uint64_t { kPing, kTake, kGive } kind;
  uint64_t size;
  char rest[24];
};

void WriteAll(int fd, const void* data, size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t sent = send(fd, from, size, MSG_NOSIGNAL);
    if (sent <= 0) Fail("the floor's peer has gone");
    from += sent;
    size -= static_cast<size_t>(sent);
  }
}

bool ReadAll(int fd, void* data, size_t size) {
  char* to = static_cast<char*>(data);
  while (size != 0) {
    const ssize_t got = recv(fd, to, size, MSG_WAITALL);
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void Serve(int fd) {
  std::vector<char> buffer;
  Message message{};
  while (ReadAll(fd, &message, sizeof message)) {
    if (buffer.size() < message.size) buffer.resize(message.size, 1);
    if (message.kind == Message::Kind::kTake && !ReadAll(fd, buffer.data(), message.size)) return;
    if (message.kind == Message::Kind::kGive) {
      WriteAll(fd, buffer.data(), message.size);
    } else {
      WriteAll(fd, &message, sizeof message);
    }
  }
}

}  // namespace

Peer::Peer() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Fail("no socket pair");
  pid_ = fork();
  if (pid_ < 0) Fail("no second process");
  if (pid_ == 0) {
    close(ends[0]);
    Serve(ends[1]);
    _exit(0);
  }
  close(ends[1]);
  fd_ = ends[0];
}

Peer::~Peer() {
  close(fd_);
  waitpid(pid_, nullptr, 0);
}

void Peer::RoundTrip() {
  Message message{Message::Kind::kPing, 0, {}};
  WriteAll(fd_, &message, sizeof message);
  if (!ReadAll(fd_, &message, sizeof message)) Fail("the floor's peer has gone");
}

void Peer::Send(const char* data, size_t size) {
  Message message{Message::Kind::kTake, size, {}};
  WriteAll(fd_, &message, sizeof message);
  WriteAll(fd_, data, size);
  if (!ReadAll(fd_, &message, sizeof message)) Fail("the floor's peer has gone");
}

void Peer::Receive(char* data, size_t size) {
  const Message message{Message::Kind::kGive, size, {}};
  WriteAll(fd_, &message, sizeof message);
  if (!ReadAll(fd_, data, size)) Fail("the floor's peer has gone");
}

}  // namespace smolvm::bench
