#include "machine/supervise/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <memory>
#include <optional>

// <linux/vm_sockets.h> needs sockaddr first.
#include <linux/vm_sockets.h>

#include "machine/guest/accelerator.h"
#include "machine/guest/initramfs.h"
#include "machine/guest/trial.h"
#include "machine/state/record.h"
#include "machine/state/store.h"
#include "machine/supervise/agent_link.h"
#include "machine/supervise/cuda_watch.h"
#include "machine/supervise/detached.h"
#include "machine/supervise/helpers.h"
#include "machine/supervise/message.h"
#include "machine/supervise/qmp.h"
#include "machine/supervise/ready_timeout.h"
#include "machine/supervise/share_servers.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/paths.h"
#include "machine/util/progress.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 20;  // while something is being waited for
constexpr int kIdleMs = 1000;
constexpr std::chrono::seconds kPowerOffGrace{20};
constexpr size_t kMaxClients = 256;
// What the detached command's client may still write of a guest that has gone.
constexpr std::chrono::seconds kForkGrace{2};

enum class Phase { kHelpers, kBooting, kRunning, kStopping, kDone };

void CloseOnExec(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

UniqueFd ListenVsock(uint32_t* port) {
  UniqueFd fd(socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_vm address{};
  address.svm_family = AF_VSOCK;
  address.svm_cid = VMADDR_CID_ANY;
  address.svm_port = VMADDR_PORT_ANY;
  socklen_t size = sizeof address;
  if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(fd.get(), 128) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Fail("cannot listen on the host's vsock: {}", ErrnoText());
  }
  *port = address.svm_port;
  return fd;
}

// The launcher chose the accelerator; the record says which.
HostAbilities HostFor(const MachineRecord& record) {
  HostAbilities host = AskHost();
  if (record.runs_on == NameOf(Accelerator::kKvm)) host.accelerator = Accelerator::kKvm;
  host.cpu = record.cpu_model;
  return host;
}

class Supervisor {
 public:
  Supervisor(MachineRecord record, fs::path folder, UniqueFd owner, UniqueFd lock)
      : record_(std::move(record)),
        folder_(std::move(folder)),
        host_(HostFor(record_)),
        lock_(std::move(lock)) {
    clients_.push_back({std::move(owner), true});
    // The kernel's vsock has one numbering for all machines of the host.
    cid_ = host_.vsock == VsockKind::kKernel ? 3 + (std::stoul(RandomHex(4), nullptr, 16) >> 2) : 3;
  }

  void Run() {
    BlockSignals();
    try {
      Start();
    } catch (const std::exception& error) {
      End(error.what());
    }
    while (phase_ != Phase::kDone) Step();
    helpers_.reset();
    EndForks();
    TakeAway();
    // Whoever waits for the clients' sockets to close finds the machine stopped then.
    lock_.reset();
  }

 private:
  struct Client {
    UniqueFd fd;
    bool owner = false;
  };

  void BlockSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, number);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  void Start() {
    control_ = ListenIn(folder_, kControlSocket, SOCK_SEQPACKET);
    UniqueFd agent_listener = host_.vsock == VsockKind::kKernel
                                  ? ListenVsock(&record_.agent_port)
                                  : ListenIn(folder_, kAgentSocket, SOCK_STREAM);
    unlink((folder_ / kFailedFile).c_str());
    GuestConfig config;
    config.secret = RandomHex(16);
    config.port = record_.agent_port;
    config.hostname = record_.name;
    config.net = record_.net;
    config.persistent = !record_.ephemeral;
    config.cuda = record_.cuda;
    for (const Share& share : record_.shares) {
      config.shares.push_back({share.guest, share.read_only, share.is_file});
    }
    link_ = std::make_unique<AgentLink>(
        std::move(agent_listener), cid_, config.secret,
        AgentLink::Handlers{[this] { OnReady(); }, [this](const std::string& why) { End(why); },
                            [this](size_t index, UniqueFd fd) { OnShare(index, std::move(fd)); },
                            [this] { OnAgentLost(); }});
    WriteInitramfs(
        folder_ / kInitramfs, FindOwnProgram("smolvm-machine-agent", "SMOLVM_MACHINE_AGENT"),
        LoadKernel(record_.kernel), config, record_.cuda ? GuestLibraryFolder() : fs::path());
    helpers_ = std::make_unique<Helpers>(record_, folder_, host_, cid_, lock_.get());
    if (record_.cuda) StartCuda();
    helpers_->StartVsockDevice();
    deadline_ = Clock::now() + std::chrono::seconds(ReadyTimeout(record_));
  }

  void StartCuda() {
    unlink((folder_ / kCudaStateFile).c_str());
    helpers_->StartCudaDaemon();
    cuda_ = std::make_unique<CudaWatch>(
        CudaWatch::Actions{[this] { helpers_->RestartCudaDaemon(); },
                           [this] { return helpers_->CudaDaemonServes(); },
                           [this](const std::string& line) { Note(line); },
                           [this](const char* word) { PublishCudaState(word); }},
        Clock::now());
  }

  void PublishCudaState(const std::string& word) {
    const fs::path file = folder_ / kCudaStateFile;
    if (word.empty()) {
      unlink(file.c_str());
      return;
    }
    try {
      WriteFileAtomically(file, word);
    } catch (const std::exception& error) {
      Note(fmt::format("the machine's state cannot be written: {}", error.what()));
    }
  }

  // One line for whoever runs a command in the machine, and for supervisor.log.
  void Note(const std::string& line) {
    Say(line);
    Broadcast({{"event", "note"}, {"message", line}});
  }

  void Step() {
    std::vector<pollfd> fds;
    fds.push_back({signals_.get(), POLLIN, 0});
    fds.push_back({control_.get(), POLLIN, 0});
    for (const Client& client : clients_) fds.push_back({client.fd.get(), POLLIN, 0});
    const size_t agent_at = fds.size();
    if (link_ != nullptr) link_->AddTo(&fds);
    const bool idle = phase_ == Phase::kRunning && (cuda_ == nullptr || !cuda_->busy());
    if (poll(fds.data(), fds.size(), idle ? kIdleMs : kTickMs) < 0 && errno != EINTR) {
      return End("poll: " + ErrnoText());
    }
    if (fds[0].revents) HandleSignals();
    const pollfd* entry = &fds[2];
    for (auto it = clients_.begin(); it != clients_.end(); ++entry) {
      const bool keep = entry->revents == 0 || HandleClient(&*it);
      it = keep ? std::next(it) : clients_.erase(it);
    }
    if (link_ != nullptr) link_->Handle(fds.data() + agent_at);
    if (fds[1].revents) AcceptClient();
    Advance();
  }

  // What happens by itself, as time goes on.
  void Advance() {
    try {
      if (phase_ == Phase::kHelpers && helpers_->ReadyForQemu()) {
        helpers_->StartQemu();
        phase_ = Phase::kBooting;
      }
    } catch (const std::exception& error) {
      return End(error.what());
    }
    if (phase_ == Phase::kBooting || phase_ == Phase::kRunning) LookAfterQemu();
    if (phase_ == Phase::kRunning && cuda_ != nullptr) cuda_->Advance(Clock::now());
    if (Clock::now() < deadline_) return;
    if (phase_ == Phase::kHelpers || phase_ == Phase::kBooting) {
      End(ExplainReadyTimeout(record_, FileTail(folder_ / kConsoleLog, 2048)));
    } else if (phase_ == Phase::kStopping) {
      phase_ = Phase::kDone;
    }
  }

  // A KVM that gives up leaves the machine stopped for ever, with QEMU as if nothing had happened.
  void LookAfterQemu() {
    const std::string state = qmp_.Stopped();
    const bool kvm = host_.accelerator == Accelerator::kKvm;
    const std::string line = kvm ? KvmGaveUp(helpers_->QemuLog()) : "";
    if (state.empty() && line.empty()) return;
    const std::string why = "QEMU stopped the machine: " + (line.empty() ? state : line);
    kvm ? EndOfKvm(why) : End(why);
  }

  // It passed its trial, or the machine would not run on it. The launcher may know what to do now.
  void EndOfKvm(const std::string& why) {
    if (phase_ != Phase::kBooting) return End(why);
    try {
      KeepFailure(LoadKernel(record_.kernel).image, CacheFolder(), why);
    } catch (const std::exception& error) {
      Say(error.what());
    }
    failed_on_kvm_ = true;
    End(why);
  }

  void HandleSignals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) Stop();
    }
    if (helpers_ == nullptr) return;
    while (const auto death = helpers_->Collect()) OnDeath(*death);
  }

  void OnDeath(const Helpers::Death& death) {
    shares_.WasCollected(death.pid);
    if (death.pid == detached_) {
      detached_ = -1;
      if (record_.ephemeral) Stop();
    }
    if (!death.known) return;
    // A QEMU that died takes the device along, and says more.
    if (!death.qemu && !death.daemon && helpers_->QemuRuns()) {
      usleep(200000);
      while (const auto next = helpers_->Collect()) OnDeath(*next);
      if (phase_ == Phase::kDone) return;
    }
    if (phase_ == Phase::kStopping) {
      if (death.qemu) phase_ = Phase::kDone;
      return;
    }
    if (death.daemon && phase_ == Phase::kRunning) {
      return cuda_->OnDeath(death.message, Clock::now());
    }
    const std::string why = death.message + ConsoleHint();
    if (death.qemu && host_.accelerator == Accelerator::kKvm) return EndOfKvm(why);
    End(why);
  }

  // A guest whose kernel stopped says so only on its console.
  std::string ConsoleHint() const {
    const std::string console = FileTail(folder_ / kConsoleLog, 65536);
    for (const char* sign : {"smolvm-agent: ", "Kernel panic", "Out of memory"}) {
      const size_t at = console.rfind(sign);
      if (at == std::string::npos) continue;
      return "; the machine's console says: " +
             console.substr(at, console.find_first_of("\r\n", at) - at);
    }
    return {};
  }

  void OnReady() {
    if (phase_ != Phase::kBooting) return;
    phase_ = Phase::kRunning;
    if (record_.detached && !record_.command.empty()) {
      link_->OpenExec([this](UniqueFd fd) {
        detached_ = StartDetachedCommand(record_, std::move(fd), folder_ / kOutputLog);
      });
    }
    Broadcast({{"event", "ready"}});
  }

  void OnShare(size_t index, UniqueFd fd) {
    if (index >= record_.shares.size()) return;
    if (!shares_.Start(index, record_.shares[index], std::move(fd)) && shares_log_.Allow())
      Say("a share's server was not started: the guest connects too often, or fork failed");
  }

  void OnAgentLost() {
    if (phase_ == Phase::kStopping) return;
    // QEMU or the device may be the reason: their end is noticed next and says more.
    if (helpers_ != nullptr) {
      usleep(200000);
      while (const auto death = helpers_->Collect()) OnDeath(*death);
    }
    if (phase_ != Phase::kDone) End("the machine's agent is gone" + ConsoleHint());
  }

  void AcceptClient() {
    UniqueFd fd(accept4(control_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid() || clients_.size() >= kMaxClients) return;
    SendMessage(fd.get(), {{"event", PhaseWord()}});
    clients_.push_back({std::move(fd), false});
  }

  const char* PhaseWord() const {
    if (phase_ == Phase::kRunning) return "ready";
    return phase_ == Phase::kHelpers || phase_ == Phase::kBooting ? "starting" : "stopping";
  }

  // False when the client is to be dropped.
  bool HandleClient(Client* client) {
    const std::optional<Message> message = ReceiveMessage(client->fd.get());
    if (!message) {
      if (client->owner) Stop();
      return false;
    }
    const std::string op = message->Text("op");
    if (op == "release") client->owner = false;
    if (op == "stop") Stop();
    if (op == "kill") {
      phase_ = Phase::kDone;
      Broadcast({{"event", "stopping"}});
    }
    if (op == "exec") {
      if (phase_ != Phase::kRunning) {
        SendMessage(client->fd.get(), {{"event", PhaseWord()}});
        return true;
      }
      // The client may be gone when the agent answers; its socket is kept by a copy.
      auto copy = std::make_shared<UniqueFd>(fcntl(client->fd.get(), F_DUPFD_CLOEXEC, 0));
      link_->OpenExec([copy](UniqueFd fd) {
        SendMessage(copy->get(), {{"event", "exec"}}, fd.get());
      });
    }
    return true;
  }

  void Broadcast(const nlohmann::json& json) {
    for (const Client& client : clients_) SendMessage(client.fd.get(), json);
  }

  // In order: what is not on a disk of ours yet is written first.
  void Stop() {
    if (phase_ == Phase::kStopping || phase_ == Phase::kDone) return;
    const bool has_data =
        !record_.ephemeral || std::any_of(record_.shares.begin(), record_.shares.end(),
                                          [](const Share& share) { return !share.read_only; });
    const bool may_ask = phase_ == Phase::kRunning && link_->connected();
    phase_ = Phase::kStopping;
    deadline_ = Clock::now() + kPowerOffGrace;
    if (host_.accelerator == Accelerator::kTcg) deadline_ += 2 * kPowerOffGrace;
    if (has_data && may_ask) {
      link_->PowerOff();
    } else {
      phase_ = Phase::kDone;
    }
    Broadcast({{"event", "stopping"}});
  }

  // At once, for a reason.
  void End(const std::string& why) {
    if (phase_ == Phase::kDone) return;
    Broadcast({{"event", phase_ == Phase::kRunning ? "ended" : "failed"},
               {"message", why},
               {"kvm", failed_on_kvm_}});
    if (!record_.ephemeral) KeepReason(why);
    phase_ = Phase::kDone;
  }

  // For `list`, and for whoever starts the machine again.
  void KeepReason(const std::string& why) {
    try {
      WriteFileAtomically(folder_ / kFailedFile, why);
    } catch (const std::exception& error) {
      Say(error.what());
    }
  }

  // With the guest gone they end by themselves, once what
  // it asked for is on the host.
  void EndForks() {
    shares_.End();
    if (detached_ <= 0) return;
    const auto give_up = Clock::now() + kForkGrace;
    while (waitpid(detached_, nullptr, WNOHANG) == 0) {
      if (Clock::now() >= give_up) kill(detached_, SIGKILL);
      usleep(5000);
    }
    detached_ = -1;
  }

  void TakeAway() {
    if (record_.ephemeral) {
      RemoveMachineFolder(folder_);
      return;
    }
    for (const char* name : {kControlSocket, kAgentSocket, kVsockSocket, kCudaSocket, kQmpSocket,
                             kInitramfs, kCudaStateFile}) {
      unlink((folder_ / name).c_str());
    }
  }

  MachineRecord record_;
  const fs::path folder_;
  const HostAbilities host_;
  UniqueFd lock_;
  unsigned cid_;
  Phase phase_ = Phase::kHelpers;
  bool failed_on_kvm_ = false;  // before the machine was ready
  Clock::time_point deadline_;
  UniqueFd signals_, control_;
  std::list<Client> clients_;
  std::unique_ptr<AgentLink> link_;
  std::unique_ptr<Helpers> helpers_;
  QmpWatch qmp_{folder_};
  std::unique_ptr<CudaWatch> cuda_;  // with --cuda, once the daemon was started
  ShareServers shares_;
  LogLimit shares_log_{1, 0.01};
  pid_t detached_ = -1;
};

}  // namespace

int RunSupervisor(const SupervisorOptions& options) {
  CloseOnExec(options.owner_fd);
  CloseOnExec(options.lock_fd);
  signal(SIGPIPE, SIG_IGN);
  // A log, a share's file or the disk that may not grow any more (`ulimit -f`) is an error of the
  // write, here and in all that is started from here.
  signal(SIGXFSZ, SIG_IGN);
  // A session of its own: a terminal's Ctrl-C is the launcher's to pass on.
  setsid();
  UniqueFd owner(options.owner_fd), lock(options.lock_fd);
  try {
    const fs::path path = options.record_path;
    // Everything of the machine works in its folder, so that its processes can be told.
    if (chdir(path.parent_path().c_str()) != 0) Fail("{}: {}", path.string(), ErrnoText());
    MachineRecord record = DecodeRecord(ReadFile(path, 16 << 20));
    Supervisor supervisor(std::move(record), path.parent_path(), std::move(owner), std::move(lock));
    supervisor.Run();
    return 0;
  } catch (const std::exception& error) {
    if (owner.valid()) SendMessage(owner.get(), {{"event", "failed"}, {"message", error.what()}});
    return kOwnError;
  }
}

}  // namespace smolvm::machine
