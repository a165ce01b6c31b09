#include "tests/bench/remoting/floors.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "tests/bench/measure.h"
#include "tests/bench/remoting/cuda.h"

namespace smolvm::bench {

// As large as a frame header with few arguments.
struct Message {
  enum class Kind : uint64_t { kPing, kTake, kGive, kRenew } kind;
  uint64_t size;
  char rest[24];
};

namespace {

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

// Where the peer keeps bytes: mapped as the emulation device's memory is, so that pages of the same
// size are filled.
class Buffer {
 public:
  char* data() const { return data_; }
  void Reserve(size_t size) {
    if (size > size_) Renew(size);
  }
  void Renew(size_t size) {
    if (data_ != nullptr) munmap(data_, size_);
    constexpr size_t kAlignment = size_t{2} << 20;
    void* got = mmap(nullptr, size + kAlignment, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) Fail("no memory for the floor's peer");
    const uintptr_t begin = reinterpret_cast<uintptr_t>(got);
    const uintptr_t aligned = (begin + kAlignment - 1) / kAlignment * kAlignment;
    if (aligned != begin) munmap(got, aligned - begin);
    if (const size_t behind = begin + kAlignment - aligned; behind != 0) {
      munmap(reinterpret_cast<void*>(aligned + size), behind);
    }
    data_ = reinterpret_cast<char*>(aligned);
    size_ = size;
    if (size >= kAlignment) madvise(data_, size, MADV_HUGEPAGE);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
};

void Serve(int fd) {
  Buffer buffer;
  Message message{};
  while (ReadAll(fd, &message, sizeof message)) {
    buffer.Reserve(message.size);
    switch (message.kind) {
      case Message::Kind::kTake:
        if (!ReadAll(fd, buffer.data(), message.size)) return;
        break;
      case Message::Kind::kGive:
        WriteAll(fd, buffer.data(), message.size);
        continue;
      case Message::Kind::kRenew:
        buffer.Renew(message.size);
        break;
      case Message::Kind::kPing:
        break;
    }
    WriteAll(fd, &message, sizeof message);
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

void Peer::Tell(const Message& message) { WriteAll(fd_, &message, sizeof message); }

void Peer::AwaitAnswer() {
  Message message{};
  if (!ReadAll(fd_, &message, sizeof message)) Fail("the floor's peer has gone");
}

void Peer::RoundTrip() {
  Tell({Message::Kind::kPing, 0, {}});
  AwaitAnswer();
}

void Peer::FarRoundTrip(double microseconds) {
  // The kernel's timers are late: the last of it is waited out, as it is in the product.
  constexpr double kSlackMs = 0.06;
  const double end = Now() + microseconds * 1e-3;
  RoundTrip();
  for (double left; (left = end - Now()) > 0;) {
    if (left > kSlackMs) usleep(static_cast<useconds_t>((left - kSlackMs) * 1e3));
  }
}

void Peer::Send(const char* data, size_t size) {
  Tell({Message::Kind::kTake, size, {}});
  WriteAll(fd_, data, size);
  AwaitAnswer();
}

void Peer::Receive(char* data, size_t size) {
  Tell({Message::Kind::kGive, size, {}});
  if (!ReadAll(fd_, data, size)) Fail("the floor's peer has gone");
}

void Peer::Renew(size_t size) {
  Tell({Message::Kind::kRenew, size, {}});
  AwaitAnswer();
}

}  // namespace smolvm::bench
