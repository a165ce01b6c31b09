#include "host-daemon/server/greeting.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <utility>

#include "protocol/base/log_limit.h"
#include "protocol/log/log.h"

namespace smolvm::server {

namespace asio = boost::asio;
using boost::system::error_code;

struct Greetings::Greeting {
  Greeting(asio::io_context& io, int fd, std::string from, std::string peer)
      : stream(io, fd), timer(io, kHelloTime), from(std::move(from)), peer(std::move(peer)) {}
  asio::posix::stream_descriptor stream;
  asio::steady_timer timer;
  std::string from, peer;
  char header[wire::kFrameHeaderBytes] = {};
  std::string args;
  std::list<std::shared_ptr<Greeting>>::iterator place;
  bool over = false;
};

Greetings::Greetings(asio::io_context& io, std::function<void(Guest)> done)
    : io_(io), done_(std::move(done)) {}

void Greetings::Add(int fd, std::string from, std::string peer) {
  if (waiting_.size() >= kMaxWaiting) DropOldest("too many silent connections");
  const auto greeting = std::make_shared<Greeting>(io_, fd, std::move(from), std::move(peer));
  greeting->place = waiting_.insert(waiting_.end(), greeting);
  greeting->timer.async_wait([this, greeting](const error_code& code) {
    if (!code) Drop(greeting, "no hello in time");
  });
  ReadHeader(greeting);
}

// Exactly the frame is read: what follows it is the worker's.
void Greetings::ReadHeader(const std::shared_ptr<Greeting>& greeting) {
  asio::async_read(greeting->stream, asio::buffer(greeting->header),
                   [this, greeting](const error_code& code, size_t) {
                     if (code) return Drop(greeting, "closed before the hello");
                     const wire::FrameHeader header = wire::LoadFrameHeader(greeting->header);
                     if (header.call_id != wire::kHello || header.bulk_length != 0 ||
                         header.args_length > worker::kMaxHelloBytes) {
                       return Drop(greeting, "not a hello");
                     }
                     greeting->args.resize(header.args_length);
                     ReadArgs(greeting);
                   });
}

void Greetings::ReadArgs(const std::shared_ptr<Greeting>& greeting) {
  asio::async_read(greeting->stream, asio::buffer(greeting->args),
                   [this, greeting](const error_code& code, size_t) {
                     if (code) return Drop(greeting, "closed within the hello");
                     Finish(greeting);
                   });
}

void Greetings::Finish(const std::shared_ptr<Greeting>& greeting) {
  if (greeting->over) return;
  Remove(greeting);
  done_({greeting->stream.release(), std::move(greeting->from), std::move(greeting->peer),
         std::move(greeting->args)});
}

void Greetings::Drop(const std::shared_ptr<Greeting>& greeting, const char* reason) {
  if (greeting->over) return;
  static LogLimit limit(kLogBurst, kLogLinesPerSecond);
  if (limit.Allow()) {
    log::Warn("event=connection_dropped {} reason={} not_logged={}", greeting->from,
              log::Quote(reason), limit.TakeSuppressed());
  }
  Remove(greeting);
  error_code ignored;
  greeting->stream.close(ignored);
}

void Greetings::Remove(const std::shared_ptr<Greeting>& greeting) {
  greeting->over = true;
  greeting->timer.cancel();
  waiting_.erase(greeting->place);
}

void Greetings::DropAll() {
  while (!waiting_.empty()) DropOldest("the daemon ends");
}

void Greetings::DropOldest(const char* reason) {
  // A reference of our own: dropping takes the list's away.
  const std::shared_ptr<Greeting> oldest = waiting_.front();
  Drop(oldest, reason);
}

}  // namespace smolvm::server
