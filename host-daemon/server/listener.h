// Sockets that guests connect to.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "protocol/transport/endpoint.h"

namespace smolvm::server {

// Lifetime: until the io_context has ended.
// Threads: the io_context's.
class Listener {
 public:
  struct Peer {
    std::string from;  // for the log: key=value fields, of the endpoint and of the peer
    std::string name;  // who it is, as the transport knows: "uid:1000", "cid:3"
    std::optional<uint32_t> cid;
  };
  // `accepted` owns the descriptor it is given.
  using Accepted = std::function<void(int fd, Peer peer)>;
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
  Peer PeerOf(int fd) const;

  const transport::Endpoint endpoint_;
  const Accepted accepted_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::steady_timer pause_;
  std::pair<dev_t, ino_t> file_{};  // what Start made, so that another's is not removed
};

}  // namespace smolvm::server
