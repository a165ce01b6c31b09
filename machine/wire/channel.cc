#include "machine/wire/channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

namespace smolvm::machine {
namespace {

bool WaitFor(int fd, short events) {
  pollfd entry{fd, events, 0};
  while (poll(&entry, 1, -1) < 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

bool Channel::Send(FrameType type, std::string_view payload) {
  Queue(type, payload);
  return SendQueued();
}

bool Channel::SendQueued() {
  while (!out_.empty()) {
    if (!Flush()) return false;
    if (!out_.empty() && !WaitFor(fd_.get(), POLLOUT)) return false;
  }
  return true;
}

void Channel::Queue(FrameType type, std::string_view payload) {
  out_ += EncodeFrame(type, payload);
}

bool Channel::Flush() {
  size_t done = 0;
  bool alive = true;
  while (done < out_.size()) {
    const ssize_t n =
        send(fd_.get(), out_.data() + done, out_.size() - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      done += n;
      continue;
    }
    if (errno == EINTR) continue;
    alive = errno == EAGAIN;
    break;
  }
  out_.erase(0, done);
  return alive;
}

bool Channel::Receive() {
  char buffer[kStreamChunk];
  const ssize_t n = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  parser_.Add({buffer, static_cast<size_t>(n)});
  return n > 0;
}

bool Channel::ReceiveOneFrame() {
  char buffer[kStreamChunk];
  while (const size_t missing = parser_.Missing()) {
    const ssize_t n = recv(fd_.get(), buffer, std::min(missing, sizeof buffer), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && errno == EAGAIN;
    parser_.Add({buffer, static_cast<size_t>(n)});
  }
  return true;
}

std::optional<Frame> Channel::WaitFrame(int timeout_ms) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  while (true) {
    if (std::optional<Frame> frame = Next()) return frame;
    if (broken()) return std::nullopt;
    int left = -1;
    if (timeout_ms >= 0) {
      left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline -
                                                                   std::chrono::steady_clock::now())
                 .count();
      if (left < 0) return std::nullopt;
    }
    pollfd entry{fd_.get(), POLLIN, 0};
    const int ready = poll(&entry, 1, left);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    if (!Receive()) return Next();
  }
}

}  // namespace smolvm::machine
