#include "protocol/transport/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace smolvm::transport {
namespace {

// Reads at least this large skip the buffer: one copy less, and no more system calls than with it.
constexpr size_t kDirectReadBytes = Channel::kReadBufferBytes / 4;

bool Poll(int fd, short events, int timeout_ms) {
  pollfd entry{fd, events, 0};
  int ready;
  do {
    ready = poll(&entry, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

int64_t NowUs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

}  // namespace

Channel::Channel(int fd) : fd_(fd), buffer_(new char[kReadBufferBytes]) {}

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

void Channel::WrittenNow() {
  if (emulated_rtt_us_ != 0) last_write_us_.store(NowUs(), std::memory_order_relaxed);
}

void Channel::AwaitEmulatedRoundTrip() const {
  if (emulated_rtt_us_ == 0) return;
  // The kernel's timers are about 50 us late; what is left of less than that is waited out.
  constexpr int64_t kTimerSlackUs = 60;
  const int64_t end = last_write_us_.load(std::memory_order_relaxed) + emulated_rtt_us_;
  for (int64_t left; (left = end - NowUs()) > 0;) {
    if (left > kTimerSlackUs) usleep(static_cast<useconds_t>(left - kTimerSlackUs));
  }
}

bool Channel::ReadSome(void* out, size_t size, int flags, size_t* got) {
  for (;;) {
    const ssize_t count = recv(fd_, out, size, flags);
    if (count > 0) {
      AwaitEmulatedRoundTrip();
      *got = static_cast<size_t>(count);
      return true;
    }
    if (count == 0) {
      errno = 0;
      return false;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      // The descriptor came from elsewhere and does not block; wait for it here.
      Poll(fd_, POLLIN, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
}

bool Channel::Fill() {
  size_t got = 0;
  if (!ReadSome(buffer_.get(), kReadBufferBytes, 0, &got)) return false;
  begin_ = 0;
  end_ = got;
  return true;
}

size_t Channel::Take(void* out, size_t size) {
  const size_t part = std::min(size, end_ - begin_);
  std::memcpy(out, buffer_.get() + begin_, part);
  begin_ += part;
  return part;
}

bool Channel::Read(void* out, size_t size) {
  char* to = static_cast<char*>(out);
  while (size != 0) {
    if (begin_ == end_ && size >= kDirectReadBytes) return ReadExactly(to, size);
    if (begin_ == end_ && !Fill()) return false;
    const size_t part = Take(to, size);
    to += part;
    size -= part;
  }
  return true;
}

bool Channel::ReadExactly(void* out, size_t size) {
  char* to = static_cast<char*>(out);
  while (size != 0) {
    size_t got = 0;
    if (begin_ != end_) {
      got = Take(to, size);
    } else if (!ReadSome(to, size, MSG_WAITALL, &got)) {
      return false;
    }
    to += got;
    size -= got;
  }
  return true;
}

bool Channel::Skip(uint64_t size) {
  while (size != 0) {
    if (begin_ == end_ && !Fill()) return false;
    const size_t part = std::min<uint64_t>(size, end_ - begin_);
    begin_ += part;
    size -= part;
  }
  return true;
}

bool Channel::Readable() { return begin_ != end_ || Poll(fd_, POLLIN, 0); }

bool Channel::Write(const void* data, size_t size) {
  WrittenNow();
  const char* from = static_cast<const char*>(data);
  while (size != 0) {
    const ssize_t count = send(fd_, from, size, MSG_NOSIGNAL);
    if (count >= 0) {
      from += count;
      size -= static_cast<size_t>(count);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      Poll(fd_, POLLOUT, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Channel::Write(iovec* parts, int count) {
  WrittenNow();
  while (count > 0) {
    if (parts->iov_len == 0) {
      ++parts;
      --count;
      continue;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<size_t>(count);
    const ssize_t sent = sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) {
        Poll(fd_, POLLOUT, -1);
      } else if (errno != EINTR) {
        return false;
      }
      continue;
    }
    size_t left = static_cast<size_t>(sent);
    while (count > 0 && left >= parts->iov_len) {
      left -= parts->iov_len;
      ++parts;
      --count;
    }
    if (left != 0) {
      parts->iov_base = static_cast<char*>(parts->iov_base) + left;
      parts->iov_len -= left;
    }
  }
  return true;
}

void Channel::Shutdown() { shutdown(fd_, SHUT_RDWR); }

}  // namespace smolvm::transport
