// smolvm-cuda-vsock: the vsock device of one virtual machine, in a process of its own because it
// parses what QEMU and the guest send. Started by smolvm-cuda-daemon, which it gives one end of a
// socket pair for each connection of the guest to the daemon's port.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "host-daemon/sandbox/sandbox.h"
#include "host-daemon/vsock/device.h"
#include "host-daemon/worker/control.h"
#include "protocol/log/log.h"
#include "protocol/transport/endpoint.h"

namespace smolvm::server {
namespace {

using worker::ControlType;
using worker::kControlFd;

// For the device's thread to see that it is to stop.
constexpr std::chrono::seconds kStopTime{2};

struct DeviceOptions {
  vsock::DeviceConfig device;
  uint32_t port = transport::kDefaultPort;
  std::string log_level = "info";
};

bool Parse(int argc, char** argv, DeviceOptions* options) {
  CLI::App app("The vsock device of one machine; started by smolvm-cuda-daemon, not by hand");
  app.add_option("--socket", options->device.socket_path)->required();
  app.add_option("--cid", options->device.guest_cid);
  app.add_option("--port", options->port);
  app.add_option("--log-level", options->log_level);
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return false;
  }
}

void PrepareProcess() {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that may not grow any more
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
}

// The device's end of a new pair, the daemon having the other; -1 refuses the guest.
int HandOver(uint32_t guest_port) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return -1;
  const bool sent = worker::SendControl(kControlFd, {.type = ControlType::kConnection},
                                        std::to_string(guest_port), ends[1], false);
  close(ends[1]);
  if (sent) return ends[0];
  close(ends[0]);
  return -1;
}

// The device ends with the daemon, and removes its socket; hence no death signal.
void WatchDaemon(vsock::Device& device) {
  worker::ControlMessage message;
  while (worker::ReceiveControl(kControlFd, true, &message) == worker::ControlResult::kGot) {
    if (message.fd >= 0) close(message.fd);
  }
  device.Stop();
  std::this_thread::sleep_for(kStopTime);
  _exit(1);
}

// QEMU is accepted, and the device's own socket taken away.
sandbox::SandboxNeeds NeedsOf(const DeviceOptions& options) {
  const std::filesystem::path folder =
      std::filesystem::path(options.device.socket_path).parent_path();
  return {.folder = folder.empty() ? "." : folder.string(),
          .entries = sandbox::SandboxNeeds::Entries::kRemove,
          .accepts = true};
}

int Run(const DeviceOptions& options) {
  vsock::Device device(options.device, [&options](uint32_t guest_port, uint32_t host_port) {
    return host_port == options.port ? HandOver(guest_port) : -1;
  });
  std::string error;
  // What QEMU and the guest write is parsed from here on.
  if (!device.Listen(&error) || !sandbox::EnterSandbox(NeedsOf(options), &error)) {
    worker::SendControl(kControlFd, {.type = ControlType::kFailed}, error, -1, true);
    return 1;
  }
  if (!worker::SendControl(kControlFd, {.type = ControlType::kReady}, "", -1, true)) return 1;
  std::thread(WatchDaemon, std::ref(device)).detach();
  return device.Run() == vsock::Device::Result::kFailed ? 1 : 0;
}

}  // namespace
}  // namespace smolvm::server

int main(int argc, char** argv) {
  smolvm::log::SetComponent("vsock");
  smolvm::server::DeviceOptions options;
  if (!smolvm::server::Parse(argc, argv, &options)) return 2;
  smolvm::log::Level level;
  if (smolvm::log::ParseLevel(options.log_level, &level)) smolvm::log::SetThreshold(level);
  smolvm::server::PrepareProcess();
  return smolvm::server::Run(options);
}
