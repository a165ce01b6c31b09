// The first frame of a connection, read without trusting or waiting for whoever sends it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "host-daemon/worker/control.h"
#include "protocol/wire/frame.h"

namespace smolvm::server {

// Of what a guest can cause the daemon to log: twenty lines at once, and two a second.
inline constexpr double kLogBurst = 20, kLogLinesPerSecond = 2;

// A connection that has said hello.
struct Guest {
  int fd = -1;        // the receiver's to close
  std::string from;   // key=value fields: which endpoint, and who the transport says it is
  std::string peer;   // that alone: "uid:1000", "cid:3", "device:PATH"
  std::string hello;  // the frame's arguments, undecoded
};

// Connections that have not yet said hello. Each has kHelloTime for it, and no more than
// kMaxWaiting wait: the oldest is dropped for a new one, so that a flood of silent connections
// never keeps out one that speaks.
//
// Lifetime: until the io_context has ended.
// Threads: the io_context's.
class Greetings {
 public:
  static constexpr std::chrono::seconds kHelloTime{5};
  static constexpr size_t kMaxWaiting = 512;

  Greetings(boost::asio::io_context& io, std::function<void(Guest)> done);
  // Takes the descriptor.
  void Add(int fd, std::string from, std::string peer);
  void DropAll();

 private:
  struct Greeting;
  void ReadHeader(const std::shared_ptr<Greeting>& greeting);
  void ReadArgs(const std::shared_ptr<Greeting>& greeting);
  void Finish(const std::shared_ptr<Greeting>& greeting);
  void Drop(const std::shared_ptr<Greeting>& greeting, const char* reason);
  void DropOldest(const char* reason);
  void Remove(const std::shared_ptr<Greeting>& greeting);

  boost::asio::io_context& io_;
  const std::function<void(Guest)> done_;
  std::list<std::shared_ptr<Greeting>> waiting_;  // oldest first
};

}  // namespace smolvm::server
