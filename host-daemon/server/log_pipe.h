// What a child process writes to its stderr, into the daemon's log.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>

namespace smolvm::server {

// A child that a guest has taken over may write anything, so none of them has the log itself. Each
// line appears behind the child's process id ("worker=1234 time=…"), which no line of the daemon's
// own begins with, with all but printable ASCII escaped; so many bytes, and no more in a time.
//
// Lifetime: reads until the child has closed its end, by itself. Threads: the io_context's.
class LogPipe : public std::enable_shared_from_this<LogPipe> {
 public:
  static constexpr size_t kBurstBytes = 256 << 10;
  static constexpr size_t kBytesPerSecond = 16 << 10;

  // `fd`: the reading end, owned from now on. `name`: of the kind of child.
  static std::shared_ptr<LogPipe> Start(boost::asio::io_context& io, int fd, const char* name,
                                        pid_t pid);
  // What is there now: of a child that has ended.
  void ReadRest();

 private:
  LogPipe(boost::asio::io_context& io, int fd, std::string prefix);
  void Wait();
  // False at the end.
  bool Read();
  void Take(const char* bytes, size_t count);
  void EndLine();
  bool HasRoom(size_t bytes);

  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::steady_timer pause_;
  const std::string prefix_;
  std::string line_;
  bool cut_ = false;  // the line is longer than is kept
  double room_ = kBurstBytes;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  uint64_t lost_ = 0;  // lines since the last that was written
};

}  // namespace smolvm::server
