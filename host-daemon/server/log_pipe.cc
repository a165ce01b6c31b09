#include "host-daemon/server/log_pipe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace smolvm::server {

using boost::system::error_code;

namespace {

constexpr size_t kMostLineBytes = 4096;
// Between two pieces of 4 KiB: one that writes without end costs the daemon next to nothing, and
// waits for it.
constexpr std::chrono::milliseconds kPause{1};

void Append(std::string* line, unsigned char c) {
  if (c >= ' ' && c < 0x7f) {
    *line += static_cast<char>(c);
  } else {
    *line += fmt::format("\\x{:02x}", c);
  }
}

}  // namespace

std::shared_ptr<LogPipe> LogPipe::Start(boost::asio::io_context& io, int fd, const char* name,
                                        pid_t pid) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  std::shared_ptr<LogPipe> pipe(new LogPipe(io, fd, fmt::format("{}={} ", name, pid)));
  pipe->Wait();
  return pipe;
}

LogPipe::LogPipe(boost::asio::io_context& io, int fd, std::string prefix)
    : pipe_(io, fd), pause_(io), prefix_(std::move(prefix)) {}

void LogPipe::Wait() {
  pipe_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                   [self = shared_from_this()](const error_code& code) {
                     if (code || !self->Read()) return;
                     self->pause_.expires_after(kPause);
                     self->pause_.async_wait([self](const error_code& cancelled) {
                       if (!cancelled) self->Wait();
                     });
                   });
}

bool LogPipe::Read() {
  char bytes[4096];
  const ssize_t got = read(pipe_.native_handle(), bytes, sizeof bytes);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) {
    if (!line_.empty()) EndLine();
    return false;
  }
  Take(bytes, static_cast<size_t>(got));
  return true;
}

void LogPipe::ReadRest() {
  // A pipe holds no more than this, and its writer is gone.
  constexpr int kMostPieces = 64;
  char bytes[4096];
  for (int k = 0; k < kMostPieces; ++k) {
    const ssize_t got = read(pipe_.native_handle(), bytes, sizeof bytes);
    if (got <= 0) break;
    Take(bytes, static_cast<size_t>(got));
  }
}

void LogPipe::Take(const char* bytes, size_t count) {
  for (size_t k = 0; k < count; ++k) {
    if (bytes[k] == '\n') {
      EndLine();
    } else if (line_.size() < kMostLineBytes) {
      Append(&line_, static_cast<unsigned char>(bytes[k]));
    } else {
      cut_ = true;
    }
  }
}

bool LogPipe::HasRoom(size_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> passed = now - std::exchange(last_, now);
  room_ = std::min<double>(kBurstBytes, room_ + passed.count() * kBytesPerSecond);
  if (room_ < static_cast<double>(bytes)) return false;
  room_ -= static_cast<double>(bytes);
  return true;
}

void LogPipe::EndLine() {
  const std::string text = std::exchange(line_, {});
  const bool cut = std::exchange(cut_, false);
  if (!HasRoom(prefix_.size() + text.size())) {
    ++lost_;
    return;
  }
  std::string line = prefix_ + text + (cut ? " (cut)" : "");
  if (lost_ != 0) line += fmt::format(" lines_lost={}", std::exchange(lost_, 0));
  line += '\n';
  while (write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace smolvm::server
