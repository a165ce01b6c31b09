#include "host-daemon/server/daemon.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "host-daemon/server/greeting.h"
#include "host-daemon/server/listener.h"
#include "host-daemon/server/notify.h"
#include "host-daemon/server/vsock_device.h"
#include "host-daemon/server/worker_pool.h"
#include "protocol/api/session.wire.h"
#include "protocol/base/log_limit.h"
#include "protocol/log/log.h"

namespace smolvm::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using transport::Endpoint;

constexpr uint32_t kInvalidValue = 1;    // CUDA_ERROR_INVALID_VALUE
constexpr uint32_t kOutOfMemory = 2;     // CUDA_ERROR_OUT_OF_MEMORY
constexpr uint32_t kNoDevice = 100;      // CUDA_ERROR_NO_DEVICE
constexpr uint32_t kNotPermitted = 800;  // CUDA_ERROR_NOT_PERMITTED
constexpr size_t kMaxProgramName = 64;

class Daemon {
 public:
  explicit Daemon(const Options& options);
  int Run();

 private:
  bool Listen();
  bool ListenAt(const transport::Endpoint& endpoint);
  void OnConnection(int fd, Listener::Peer peer);
  void AddDevice(const transport::Endpoint& endpoint);
  void OnSignal();
  void OnReady();
  void OnGuest(Guest guest);
  void OnSessionEnded();
  void Refuse(Guest guest, uint32_t status, const std::string& message);
  void Fail(const std::string& reason);
  void Drain();
  void Quit();
  void AwaitSignals();
  void AwaitChildren();

  const Options& options_;
  asio::io_context io_;
  asio::signal_set signals_;
  asio::signal_set children_;
  asio::steady_timer drain_limit_;
  LogLimit refusals_{kLogBurst, kLogLinesPerSecond};
  WorkerPool pool_;
  Greetings greetings_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::unique_ptr<VsockDevice>> devices_;
  std::string backend_;         // key=value fields, once a worker has told
  size_t devices_awaited_ = 0;  // that are not ready yet
  bool draining_ = false;
  int status_ = 0;
};

Daemon::Daemon(const Options& options)
    : options_(options),
      io_(1),
      signals_(io_, SIGTERM, SIGINT),
      children_(io_, SIGCHLD),
      drain_limit_(io_),
      pool_(io_,
            {options.worker, options.worker_arguments, options.workers_ready, options.max_sessions},
            {.ready =
                 [this](const std::string& backend) {
                   backend_ = backend;
                   OnReady();
                 },
             .hopeless = [this](const std::string& reason) { Fail(reason); },
             .unserved =
                 [this](Guest guest) {
                   Refuse(std::move(guest), kNoDevice, "no worker could be started");
                 },
             .ended = [this] { OnSessionEnded(); }}),
      greetings_(io_, [this](Guest guest) { OnGuest(std::move(guest)); }) {}

int Daemon::Run() {
  if (!Listen()) return 1;
  AwaitSignals();
  AwaitChildren();
  for (const auto& device : devices_) device->Start();
  if (status_ == 0) pool_.Start();
  if (status_ == 0) io_.run();
  pool_.KillAll();
  return status_;
}

bool Daemon::Listen() {
  for (const Endpoint& endpoint : options_.listen) {
    if (endpoint.kind == Endpoint::Kind::kVhostUser) {
      AddDevice(endpoint);
    } else if (!ListenAt(endpoint)) {
      return false;
    }
  }
  return true;
}

bool Daemon::ListenAt(const Endpoint& endpoint) {
  auto listener = std::make_unique<Listener>(
      io_, endpoint, [this](int fd, Listener::Peer peer) { OnConnection(fd, std::move(peer)); });
  std::string error;
  if (!listener->Start(&error)) {
    Fail(error);
    return false;
  }
  listeners_.push_back(std::move(listener));
  return true;
}

void Daemon::AddDevice(const Endpoint& endpoint) {
  ++devices_awaited_;
  devices_.push_back(std::make_unique<VsockDevice>(
      io_, options_.vsock_device, endpoint, options_.log_level_name,
      VsockDevice::Events{.accepted =
                              [this, name = "device:" + endpoint.path](int fd, std::string from) {
                                if (draining_) {
                                  close(fd);
                                } else {
                                  greetings_.Add(fd, std::move(from), name);
                                }
                              },
                          .ready =
                              [this] {
                                --devices_awaited_;
                                OnReady();
                              },
                          .failed = [this](const std::string& reason) { Fail(reason); }}));
}

// Refused before a byte is read: any guest of the host can reach a port of kernel vsock.
void Daemon::OnConnection(int fd, Listener::Peer peer) {
  if (MayConnect(options_, peer.cid)) {
    return greetings_.Add(fd, std::move(peer.from), std::move(peer.name));
  }
  if (refusals_.Allow()) {
    log::Warn("event=peer_refused {} reason=\"not a --peer-cid\" not_logged={}", peer.from,
              refusals_.TakeSuppressed());
  }
  close(fd);
}

void Daemon::AwaitSignals() {
  signals_.async_wait([this](const error_code& code, int) {
    if (code) return;
    OnSignal();
    AwaitSignals();
  });
}

void Daemon::AwaitChildren() {
  children_.async_wait([this](const error_code& code, int) {
    if (code) return;
    pool_.Reap();
    for (const auto& device : devices_) device->Reap();
    AwaitChildren();
  });
}

// Called when a part is ready: when all are, the daemon is.
void Daemon::OnReady() {
  if (backend_.empty() || devices_awaited_ != 0) return;
  std::string listen;
  for (const Endpoint& endpoint : options_.listen) {
    listen += " listen=" + log::Quote(ToString(endpoint));
  }
  log::Info("event=ready{} {}", listen, backend_);
  NotifyManager("READY=1");
}

void Daemon::OnGuest(Guest guest) {
  api::Hello hello;
  if (!api::Decode(guest.hello, &hello)) {
    return Refuse(std::move(guest), kInvalidValue, "malformed hello");
  }
  if (!hello.callback_token.empty()) {
    const int fd = guest.fd;
    Guest refused{fd, guest.from, {}, {}};
    if (!pool_.PassCallback(hello.callback_token, std::move(guest))) {
      Refuse(std::move(refused), kNotPermitted, "no session has this token");
    }
    return;
  }
  if (draining_) return Refuse(std::move(guest), kNoDevice, "the daemon is shutting down");
  if (pool_.sessions() >= options_.max_sessions) {
    return Refuse(
        std::move(guest), kOutOfMemory,
        fmt::format("{} sessions are running, and no more are allowed", options_.max_sessions));
  }
  if (const size_t limit = SessionsForAPeer(options_); pool_.SessionsOf(guest.peer) >= limit) {
    const std::string why = fmt::format(
        "{} sessions of this peer ({}) are running, and no more are allowed "
        "(--max-sessions-per-peer)",
        limit, guest.peer);
    return Refuse(std::move(guest), kOutOfMemory, why);
  }
  guest.from += fmt::format(" program={} guest_pid={}",
                            log::Quote(hello.program.substr(0, kMaxProgramName)), hello.pid);
  pool_.Serve(std::move(guest));
}

// The reply fits into any socket's buffer, so a guest that does not read cannot make this wait.
void Daemon::Refuse(Guest guest, uint32_t status, const std::string& message) {
  if (refusals_.Allow()) {
    log::Warn("event=guest_refused {} status={} reason={} not_logged={}", guest.from, status,
              log::Quote(message), refusals_.TakeSuppressed());
  }
  api::HelloReply reply;
  reply.status = status;
  reply.message = message;
  reply.protocol_version = wire::kProtocolVersion;
  reply.daemon_version = SMOLVM_VERSION;
  std::string frame(wire::kFrameHeaderBytes, '\0');
  api::Encode(reply, &frame);
  wire::FrameHeader header;
  header.call_id = wire::kHelloReply;
  header.flags = wire::kFlagReply;
  header.args_length = static_cast<uint32_t>(frame.size() - wire::kFrameHeaderBytes);
  wire::StoreFrameHeader(header, frame.data());
  // Whether it arrives is the guest's business.
  if (send(guest.fd, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    log::Debug("event=refusal_unsent {}", guest.from);
  }
  close(guest.fd);
}

void Daemon::Fail(const std::string& reason) {
  if (status_ == 0) fmt::print(stderr, "smolvm-cuda-daemon: {}\n", reason);
  status_ = 1;
  Quit();
}

void Daemon::OnSignal() {
  if (draining_) return Quit();
  Drain();
}

void Daemon::Drain() {
  draining_ = true;
  for (const auto& listener : listeners_) listener->Stop();
  log::Info("event=draining sessions={} seconds={}", pool_.sessions(), options_.drain_seconds);
  NotifyManager("STOPPING=1");
  greetings_.DropAll();
  pool_.Drain();
  if (pool_.sessions() == 0) return Quit();
  drain_limit_.expires_after(std::chrono::seconds(options_.drain_seconds));
  drain_limit_.async_wait([this](const error_code& code) {
    if (!code) Quit();
  });
}

void Daemon::OnSessionEnded() {
  if (draining_ && pool_.sessions() == 0) Quit();
}

void Daemon::Quit() {
  for (const auto& listener : listeners_) listener->Stop();
  for (const auto& device : devices_) device->Stop();
  pool_.KillAll();
  if (draining_) log::Info("event=stopped sessions_cut_off={}", pool_.sessions());
  io_.stop();
}

}  // namespace

int RunDaemon(const Options& options) {
  log::SetComponent("daemon");
  log::SetThreshold(options.log_level);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that may not grow any more ends nobody's session
  // Each waiting connection and each worker has a descriptor.
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  Daemon daemon(options);
  return daemon.Run();
}

}  // namespace smolvm::server
