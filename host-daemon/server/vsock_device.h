// A vhost-user endpoint: a device process (smolvm-cuda-vsock), watched, and started again when it
// dies.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>
#include <vector>

#include "host-daemon/server/listener.h"
#include "host-daemon/server/log_pipe.h"
#include "host-daemon/server/process.h"
#include "host-daemon/worker/control.h"

namespace smolvm::server {

// Lifetime: until the io_context has ended.
// Threads: the io_context's.
class VsockDevice {
 public:
  struct Events {
    std::function<void(int fd, std::string from)> accepted;  // owns the descriptor
    std::function<void()> ready;                             // QEMU may connect
    std::function<void(const std::string&)> failed;          // it could not even be started once
  };
  VsockDevice(boost::asio::io_context& io, std::string program, const transport::Endpoint& endpoint,
              std::string log_level, Events events);

  void Start();
  void Stop();
  // To be called on SIGCHLD.
  void Reap();

 private:
  void WatchControl();
  void OnControl();
  void Handle(const worker::ControlMessage& message);
  void StartAgainSoon(const std::string& reason);

  const std::string program_;
  const transport::Endpoint endpoint_;
  const std::vector<std::string> arguments_;
  const Events events_;
  boost::asio::io_context& io_;
  boost::asio::posix::stream_descriptor control_;
  boost::asio::steady_timer pause_;
  pid_t pid_ = -1;
  std::shared_ptr<LogPipe> log_;
  std::string failure_;
  bool ever_ready_ = false;
  bool stopped_ = false;
};

}  // namespace smolvm::server
