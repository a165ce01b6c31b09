#include "host-daemon/server/vsock_device.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "protocol/log/log.h"

namespace smolvm::server {

using boost::system::error_code;
using worker::ControlMessage;
using worker::ControlResult;
using worker::ControlType;

namespace {

constexpr std::chrono::seconds kRestartPause{1};

}  // namespace

VsockDevice::VsockDevice(boost::asio::io_context& io, std::string program,
                         const transport::Endpoint& endpoint, std::string log_level, Events events)
    : program_(std::move(program)),
      endpoint_(endpoint),
      arguments_{"--socket=" + endpoint.path, "--port=" + std::to_string(endpoint.port),
                 "--log-level=" + log_level},
      events_(std::move(events)),
      io_(io),
      control_(io),
      pause_(io) {}

void VsockDevice::Start() {
  Child child;
  std::string error;
  if (!StartChild(program_, arguments_, &child, &error)) return StartAgainSoon(error);
  pid_ = child.pid;
  log_ = LogPipe::Start(io_, child.log, "vsock_device", child.pid);
  failure_.clear();
  control_.assign(child.control);
  WatchControl();
}

void VsockDevice::WatchControl() {
  control_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                      [this](const error_code& code) {
                        if (!code) OnControl();
                      });
}

void VsockDevice::OnControl() {
  ControlMessage message;
  const ControlResult result = worker::ReceiveControl(control_.native_handle(), false, &message);
  if (result == ControlResult::kClosed) {
    error_code ignored;
    control_.close(ignored);  // Reap sees to the rest
    return;
  }
  if (result == ControlResult::kGot) Handle(message);
  if (control_.is_open()) WatchControl();
}

void VsockDevice::Handle(const ControlMessage& message) {
  if (message.header.type == ControlType::kConnection && message.fd >= 0) {
    return events_.accepted(message.fd, "listen=" + log::Quote(ToString(endpoint_)));
  }
  if (message.fd >= 0) close(message.fd);
  if (message.header.type == ControlType::kFailed) failure_ = message.text;
  if (message.header.type != ControlType::kReady) return;
  if (!std::exchange(ever_ready_, true)) events_.ready();
}

void VsockDevice::Reap() {
  int status = 0;
  if (pid_ <= 0 || waitpid(pid_, &status, WNOHANG) != pid_) return;
  pid_ = -1;
  log_->ReadRest();
  ControlMessage message;
  while (control_.is_open() &&
         worker::ReceiveControl(control_.native_handle(), false, &message) == ControlResult::kGot) {
    Handle(message);
  }
  error_code ignored;
  control_.close(ignored);
  if (stopped_) return;
  StartAgainSoon(failure_.empty() ? "the vsock device ended with " + DescribeExit(status)
                                  : failure_);
}

void VsockDevice::StartAgainSoon(const std::string& reason) {
  if (!ever_ready_) return events_.failed(reason);
  log::Error("event=vsock_device_failed listen={} reason={}", log::Quote(ToString(endpoint_)),
             log::Quote(reason));
  pause_.expires_after(kRestartPause);
  pause_.async_wait([this](const error_code& code) {
    if (!code) Start();
  });
}

// Not killed: it ends when the control socket closes, and then removes its own.
void VsockDevice::Stop() {
  stopped_ = true;
  pause_.cancel();
  error_code ignored;
  control_.close(ignored);
}

}  // namespace smolvm::server
