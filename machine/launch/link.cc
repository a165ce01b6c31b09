#include "machine/launch/link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "machine/supervise/helpers.h"
#include "machine/supervise/message.h"
#include "machine/util/failure.h"
#include "machine/util/interrupt.h"
#include "machine/util/progress.h"

namespace smolvm::machine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTickMs = 200;
constexpr useconds_t kAskAgainUs = 10000;
constexpr std::chrono::seconds kExecLimit{120};
constexpr std::chrono::seconds kLockLimit{10};
// Longer than the supervisor itself waits for a guest to power off.
constexpr std::chrono::seconds kStopLimit{90};

constexpr char kStopped[] = "it was stopped";

// In the child of a fork.
[[noreturn]] void BecomeSupervisor(const std::string& record, const std::string& log, int owner,
                                   int lock) {
  setsid();
  const int null = open("/dev/null", O_RDWR);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(null, 0);
  dup2(out >= 0 ? out : null, 1);
  dup2(out >= 0 ? out : null, 2);
  fcntl(owner, F_SETFD, 0);
  fcntl(lock, F_SETFD, 0);
  const std::string owner_text = std::to_string(owner), lock_text = std::to_string(lock);
  execl("/proc/self/exe", "smolvm", "machine", "supervise", "--record", record.c_str(),
        "--owner-fd", owner_text.c_str(), "--lock-fd", lock_text.c_str(), nullptr);
  _exit(kOwnError);
}

[[noreturn]] void NoAnswer(const std::string& name) {
  Fail("the supervisor of the machine {} does not answer", name);
}

// The next message, with progress and Ctrl-C looked after. Nothing when the supervisor is gone.
std::optional<Message> Next(int socket, Progress* progress, Clock::time_point deadline,
                            bool heed_interrupts) {
  while (true) {
    if (heed_interrupts) CheckInterrupt();
    progress->Tick();
    bool timed_out = false;
    std::optional<Message> message = ReceiveMessage(socket, kTickMs, &timed_out);
    if (!timed_out) return message;
    if (Clock::now() > deadline) Fail("the machine's supervisor does not answer");
  }
}

}  // namespace

MachineLink MachineLink::Start(const MachineStore& store, const MachineRecord& record,
                               UniqueFd lock) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
    Fail("no socket can be made: {}", ErrnoText());
  }
  UniqueFd ours(pair[0]), theirs(pair[1]);
  const std::string folder = store.FolderOf(record.name);
  const pid_t pid = fork();
  if (pid < 0) Fail("no process can be made: {}", ErrnoText());
  if (pid == 0) {
    BecomeSupervisor(folder + "/machine.json", folder + "/supervisor.log", theirs.get(),
                     lock.get());
  }
  return MachineLink(std::move(ours), record.name, true);
}

std::optional<MachineLink> MachineLink::Connect(const std::filesystem::path& folder,
                                                const std::string& name) {
  UniqueFd socket = ConnectIn(folder, kControlSocket, SOCK_SEQPACKET);
  if (!socket.valid()) return std::nullopt;
  return MachineLink(std::move(socket), name, false);
}

bool MachineLink::WaitReady(uint32_t timeout_s) {
  Progress progress("starting the machine " + name_);
  // The supervisor keeps the limit; this one is for a supervisor that hangs.
  const auto deadline = Clock::now() + std::chrono::seconds(timeout_s + 60);
  while (true) {
    const auto message = Next(socket_.get(), &progress, deadline, true);
    if (!message && owner_) Fail("the machine's supervisor ended before the machine was ready");
    if (!message) return false;
    const std::string event = message->Text("event");
    if (event == "ready") return true;
    if (event == "stopping") return false;
    if (event == "failed" && message->json.value("kvm", false)) {
      throw KvmFailure(message->Text("message"));
    }
    if (event == "failed" || event == "ended") Fail("{}", message->Text("message"));
    if (event == "note") Say(message->Text("message"));
  }
}

UniqueFd MachineLink::OpenExec() {
  Progress progress("waiting for the machine's agent");
  const auto deadline = Clock::now() + kExecLimit;
  SendMessage(socket_.get(), {{"op", "exec"}});
  while (true) {
    auto message = Next(socket_.get(), &progress, deadline, true);
    if (!message && owner_) Fail("the machine's supervisor ended");
    if (!message) return UniqueFd();
    const std::string event = message->Text("event");
    if (event == "stopping") return UniqueFd();
    if (event == "exec" && message->fd.valid()) return std::move(message->fd);
    if (event == "failed" || event == "ended") Fail("{}", message->Text("message"));
    if (event == "note") Say(message->Text("message"));
  }
}

void MachineLink::Release() { SendMessage(socket_.get(), {{"op", "release"}}); }

void MachineLink::Stop(bool force) {
  Progress progress("stopping the machine " + name_);
  const auto deadline = Clock::now() + kStopLimit;
  SendMessage(socket_.get(), {{"op", force ? "kill" : "stop"}});
  while (Next(socket_.get(), &progress, deadline, false)) {
  }
}

bool MachineLink::Stays() {
  Progress progress("waiting for the machine " + name_);
  const auto message = Next(socket_.get(), &progress, Clock::now() + kExecLimit, true);
  return message && message->Text("event") != "stopping";
}

void MachineLink::SayNotes() {
  bool timed_out = false;
  while (const auto message = ReceiveMessage(socket_.get(), 0, &timed_out)) {
    const std::string event = message->Text("event");
    if (event == "note") Say(message->Text("message"));
    if (event == "ended") ended_ = message->Text("message");
    if (event == "stopping") ended_ = kStopped;
  }
}

std::string MachineLink::WhyEnded() {
  Progress progress("");
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  std::string why = ended_;
  while (const auto message = Next(socket_.get(), &progress, deadline, false)) {
    if (message->Text("event") == "ended") why = message->Text("message");
    if (message->Text("event") == "stopping") why = kStopped;
  }
  return why.empty() ? "the machine's supervisor ended" : why;
}

void StopMachine(const MachineStore& store, const std::string& name, bool force) {
  Progress progress("stopping the machine " + name);
  const auto deadline = Clock::now() + kStopLimit;
  bool stopped = false;
  while (store.Locked(name)) {
    // When the supervisor's socket closes the lock is free. None listens while somebody starts or
    // removes the machine, or when the supervisor was killed and QEMU is not gone yet.
    if (auto link = MachineLink::Connect(store.FolderOf(name), name)) {
      if (stopped) return;  // and started again since
      link->Stop(force);
      stopped = true;
    } else {
      usleep(kAskAgainUs);
      progress.Tick();
    }
    if (Clock::now() > deadline) NoAnswer(name);
  }
}

bool IsUp(const MachineStore& store, const std::string& name) {
  Progress progress("waiting for the machine " + name);
  const auto deadline = Clock::now() + kStopLimit;
  while (store.Locked(name)) {
    if (auto link = MachineLink::Connect(store.FolderOf(name), name)) return link->Stays();
    CheckInterrupt();
    usleep(kAskAgainUs);
    progress.Tick();
    if (Clock::now() > deadline) NoAnswer(name);
  }
  return false;
}

UniqueFd LockStopped(MachineStore* store, const std::string& name) {
  const auto deadline = Clock::now() + kLockLimit;
  while (store->Find(name)) {
    UniqueFd lock = store->Lock(name);
    if (lock.valid()) return lock;
    if (Clock::now() > deadline) Fail("the machine {} was started again", name);
    usleep(kAskAgainUs);
  }
  return UniqueFd();
}

}  // namespace smolvm::machine
