// Sockets that guests connect to.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>
#include <utility>

#include "protocol/transport/endpoint.h"

namespace smolvm::server {

// Lifetime: until the io_context has ended.
// Threads: the io_context's.
class Listener {
 public:
  // `accepted` owns the descriptor it is given; its text is for the log: key=value fields that say
  // which endpoint this is and what the transport knows of the peer.
  using Accepted = std::function<void(int fd, std::string from)>;
  Listener(boost::asio::io_context& io, const transport::Endpoint& endpoint, Accepted accepted);
  // Removes the socket file that Start made.
  ~Listener();

  // unix and vsock endpoints. False with a one-line reason.
  bool Start(std::string* error);
  void Stop();
  const transport::Endpoint& endpoint() const { return endpoint_; }

 private:
  void Wait();
  void AcceptSome();
  std::string Describe(int fd) const;

  const transport::Endpoint endpoint_;
  const Accepted accepted_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
  std::pair<dev_t, ino_t> file_{};  // what Start made, so that another's is not removed
};

}  // namespace smolvm::server
