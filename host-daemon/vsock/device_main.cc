// smolvm-vsock-device: the vsock device of one guest as a program of its own, which relays each of
// the guest's connections to a Unix socket.

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "host-daemon/sandbox/sandbox.h"
#include "host-daemon/vsock/broker.h"
#include "host-daemon/vsock/device.h"
#include "protocol/base/log_limit.h"
#include "protocol/log/log.h"

namespace {

using smolvm::vsock::Broker;
using smolvm::vsock::Device;
using smolvm::vsock::DeviceConfig;
namespace log = smolvm::log;

struct Options {
  DeviceConfig device;
  std::map<uint32_t, std::string> forwards;  // guest's port to path
  std::string uds_prefix;
};

smolvm::LogLimit g_log_limit(smolvm::vsock::kLogBurst, smolvm::vsock::kLogLinesPerSecond);

// PORT=unix:PATH. Throws CLI::ValidationError.
void AddForward(const std::string& text, Options* options) {
  constexpr const char kScheme[] = "=unix:";
  const size_t equals = text.find(kScheme);
  uint32_t port = 0;
  if (equals == std::string::npos || !CLI::detail::lexical_cast(text.substr(0, equals), port)) {
    throw CLI::ValidationError("--forward", "'" + text + "' is not of the form PORT=unix:PATH");
  }
  options->forwards[port] = text.substr(equals + std::strlen(kScheme));
}

std::string PathFor(const Options& options, uint32_t port) {
  if (auto it = options.forwards.find(port); it != options.forwards.end()) return it->second;
  return options.uds_prefix.empty() ? "" : fmt::format("{}_{}", options.uds_prefix, port);
}

int HandleConnect(const Options& options, Broker& broker, uint32_t guest_port, uint32_t host_port) {
  const std::string path = PathFor(options, host_port);
  const int fd = path.empty() ? -1 : broker.Connect(host_port);
  if (fd < 0 && g_log_limit.Allow()) {
    log::Warn("event=vsock_refused guest_port={} port={} path={} reason={} suppressed={}",
              guest_port, host_port, log::Quote(path),
              log::Quote(path.empty() ? "no forward" : strerror(errno)),
              g_log_limit.TakeSuppressed());
  }
  return fd;
}

// Each stream has a descriptor; the usual soft limit of 1024 is below what may be needed.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// QEMU is accepted, and the device's own socket taken away.
smolvm::sandbox::SandboxNeeds NeedsOf(const Options& options) {
  const std::filesystem::path folder =
      std::filesystem::path(options.device.socket_path).parent_path();
  return {.folder = folder.empty() ? "." : folder.string(),
          .entries = smolvm::sandbox::SandboxNeeds::Entries::kRemove,
          .accepts = true};
}

Device* g_device = nullptr;

void OnSignal(int) { g_device->Stop(); }

int RunDevice(const Options& options) {
  Broker broker;
  Device device(options.device, [&](uint32_t guest_port, uint32_t host_port) {
    return HandleConnect(options, broker, guest_port, host_port);
  });
  std::string error;
  const auto path_of = [&options](uint32_t port) { return PathFor(options, port); };
  // What QEMU and the guest write is parsed from here on.
  if (!device.Listen(&error) || !broker.Start(path_of, &error) ||
      !smolvm::sandbox::EnterSandbox(NeedsOf(options), &error)) {
    fmt::print(stderr, "smolvm-vsock-device: {}\n", error);
    return 1;
  }
  g_device = &device;
  std::signal(SIGTERM, OnSignal);
  std::signal(SIGINT, OnSignal);
  std::puts("ready");
  std::fflush(stdout);
  return device.Run() == Device::Result::kFailed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  log::SetComponent("vsock-device");
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a log that may not grow any more
  RaiseDescriptorLimit();

  Options options;
  std::vector<std::string> forwards;
  std::string log_level = "warn";
  CLI::App app(
      "A virtio-vsock device for one QEMU guest (vhost-user). Prints 'ready' once QEMU may "
      "connect; "
      "exits on SIGTERM.");
  app.add_option("--socket", options.device.socket_path, "Unix socket that QEMU connects to")
      ->required();
  app.add_option("--cid", options.device.guest_cid, "the guest's context id, 3 or more")
      ->required();
  app.add_option("--forward", forwards,
                 "PORT=unix:PATH: relays the guest's connections to host port PORT to a socket");
  app.add_option("--uds", options.uds_prefix,
                 "relays connections to any other port N to the socket PREFIX_N");
  app.add_flag("--once", options.device.once,
               "exit when QEMU disconnects: 0, or 1 if it or the guest broke the protocol");
  app.add_option("--max-connections", options.device.limits.max_connections, "at the same time")
      ->check(CLI::Range(1u, 65536u))
      ->capture_default_str();
  app.add_option("--buffer", options.device.limits.buffer, "bytes held for each connection")
      ->check(CLI::Range(4096u, 64u << 20))
      ->capture_default_str();
  app.add_option("--log-level", log_level, "off, error, warn, info or debug")
      ->envname("SMOLVM_CUDA_LOG")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    for (const std::string& forward : forwards) AddForward(forward, &options);
    log::Level level;
    if (!log::ParseLevel(log_level, &level)) {
      throw CLI::ValidationError("--log-level", "unknown level '" + log_level + "'");
    }
    log::SetThreshold(level);
  } catch (const CLI::ParseError& e) {
    return app.exit(e);
  }
  return RunDevice(options);
}
