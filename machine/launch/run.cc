#include "machine/launch/run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <thread>

#include "machine/guest/accelerator.h"
#include "machine/guest/cuda_host.h"
#include "machine/guest/kernel.h"
#include "machine/guest/qemu.h"
#include "machine/image/store.h"
#include "machine/launch/disk.h"
#include "machine/launch/environment.h"
#include "machine/launch/link.h"
#include "machine/launch/mounts.h"
#include "machine/launch/session.h"
#include "machine/state/store.h"
#include "machine/supervise/helpers.h"
#include "machine/supervise/ready_timeout.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/interrupt.h"
#include "machine/util/paths.h"
#include "machine/util/progress.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

constexpr uint32_t kDefaultMemoryMib = 2048;
// Less than this and the kernel does not even unpack the agent.
constexpr uint32_t kLeastMemoryMib = 128;
constexpr uint32_t kMostCpus = 64;
constexpr uint32_t kAgentPort = 7001;
constexpr uint32_t kCudaPort = 7000;
// How long a machine may be between running and stopped, and how often that is looked at.
constexpr std::chrono::seconds kUndecidedLimit{120};
constexpr useconds_t kAskAgainUs = 10000;

uint32_t ChooseMemory(const Options& options) {
  const uint64_t total = AskHostMemory().total_mib;
  if (!options.memory_mib) {
    return std::max<uint64_t>(kLeastMemoryMib, std::min<uint64_t>(kDefaultMemoryMib, total / 2));
  }
  const uint32_t wanted = *options.memory_mib;
  if (wanted < kLeastMemoryMib) {
    Fail("--mem {}: a machine needs {} MiB at least", wanted, kLeastMemoryMib);
  }
  if (wanted > total) Fail("--mem {}: this host has {} MiB of memory in all", wanted, total);
  return wanted;
}

void CheckCpus(const Options& options) {
  if (options.cpus > kMostCpus) Fail("--cpus {}: {} at most", options.cpus, kMostCpus);
}

uint32_t ChooseCpus(const MachineRecord& record) {
  if (record.asked_cpus > 0) return record.asked_cpus;
  // An emulated processor takes a whole real one, and a second gains little.
  if (record.runs_on == NameOf(Accelerator::kTcg)) return 1;
  return std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
}

void SayWhatItRunsOn(const MachineRecord& record, const std::string& why_not_kvm) {
  if (record.runs_on == NameOf(Accelerator::kKvm)) {
    Say("the machine runs on KVM");
  } else {
    Say(fmt::format("the machine is emulated, and slow: {}", why_not_kvm));
  }
  if (record.cuda && !HostHasCudaDriver()) {
    Say("no NVIDIA driver here: --cuda uses the CPU emulation device, not a GPU");
  }
}

void RunOn(const AcceleratorChoice& choice, MachineRecord* record) {
  record->runs_on = NameOf(choice.accelerator);
  record->cpu_model = choice.cpu;
  record->cpus = ChooseCpus(*record);
}

// At each start, for the host may have changed. Returns why it is not KVM.
std::string ChooseWhatItRunsOn(MachineRecord* record) {
  const AcceleratorChoice choice = ChooseAccelerator(
      ChosenWish(record->accelerator), LoadKernel(record->kernel).image, CacheFolder());
  RunOn(choice, record);
  return choice.reason;
}

// Of a machine that KVM failed; throws the failure again where KVM was asked for.
void RunEmulated(const KvmFailure& failure, MachineRecord* record) {
  if (ChosenWish(record->accelerator) == AcceleratorWish::kKvm) throw failure;
  RunOn({}, record);
  Say(fmt::format("KVM failed the machine, which is now emulated, and slow: {}", failure.what()));
}

std::string CudaEndpoint(const MachineRecord& record) {
  return record.cuda ? fmt::format("vsock:2:{}", record.cuda_port) : "";
}

std::vector<std::string> ChooseCommand(const Options& options, const ImageConfig& image) {
  if (!options.command.empty()) return options.command;
  std::vector<std::string> command = image.entrypoint;
  command.insert(command.end(), image.command.begin(), image.command.end());
  if (command.empty() && options.tty) command = {"/bin/sh"};
  if (command.empty() && !options.detach) Fail("the image names no command; give one after '--'");
  return options.detach ? std::vector<std::string>{} : command;
}

MachineRecord DescribeMachine(const Options& options, const HostAbilities& host, std::string name) {
  MachineRecord record;
  record.name = std::move(name);
  record.created = std::time(nullptr);
  record.detached = options.detach;
  record.ephemeral = !(options.detach && !options.name.empty());
  ChosenWish(options.accelerator);  // must be one
  record.accelerator = options.accelerator;
  record.image = options.image.empty() ? kDefaultImage : options.image;
  record.memory_mib = ChooseMemory(options);
  CheckCpus(options);
  record.asked_cpus = options.cpus;
  record.net = options.net;
  record.cuda = options.cuda;
  record.shares = ParseMounts(options.volumes);
  record.ready_timeout_s = options.ready_timeout_s;
  record.agent_port = kAgentPort;
  // The kernel's vsock has one set of ports for all machines of a host.
  record.cuda_port = host.vsock == VsockKind::kKernel
                         ? 0x10000 + (std::stoul(RandomHex(4), nullptr, 16) >> 2)
                         : kCudaPort;
  return record;
}

// What the machine needs from the cache.
void TakeImage(const Options& options, MachineRecord* record) {
  const auto cache = CacheFolder();
  record->kernel = EnsureKernel(cache).folder;
  const Image image = EnsureImage(options.image, cache, options.image_limit);
  record->image_file = image.disk;
  record->env = BuildEnvironment(image.config.env, options.env, CudaEndpoint(*record));
  record->workdir = !options.workdir.empty()        ? options.workdir
                    : !image.config.workdir.empty() ? image.config.workdir
                                                    : "/";
  record->user = image.config.user;
  record->command = ChooseCommand(options, image.config);
  if (record->cuda && image.libc == "musl") {
    Say("this image is built on musl, and the CUDA library needs glibc: CUDA programs will not "
        "start in it (python:3.12-slim and 'debian' are glibc images)");
  }
}

// Checked before anything is fetched or made, so that a missing program costs nothing.
void CheckPrograms(const MachineRecord& record, const HostAbilities& host) {
  FindOwnProgram("smolvm-machine-agent", "SMOLVM_MACHINE_AGENT");
  if (host.vsock == VsockKind::kOurs) FindOwnProgram("smolvm-vsock-device", "SMOLVM_VSOCK_DEVICE");
  if (record.cuda) {
    FindOwnProgram("smolvm-cuda-daemon", "SMOLVM_CUDA_DAEMON");
    GuestLibraryFolder();
  }
}

ExecRequest MakeRequest(const Options& options, const MachineRecord& record,
                        const std::vector<std::string>& command) {
  ExecRequest request;
  request.argv = command;
  request.env = record.env;
  request.workdir = options.workdir.empty() ? record.workdir : options.workdir;
  // As container tools do: a new machine's is made, one that is named for `exec` must be there.
  request.make_workdir = options.verb == "run" || options.workdir.empty();
  request.user = record.user;
  request.stdin_open = options.interactive;
  request.tty = options.tty;
  if (options.tty) {
    const char* term = std::getenv("TERM");
    request.env =
        MergeEnvironment({std::string("TERM=") + (term != nullptr ? term : "xterm")}, request.env);
  }
  return request;
}

int StatusOf(const ExitReport& report) {
  const bool ran = report.kind == ExitKind::kExited || report.kind == ExitKind::kSignalled;
  if (ran && !report.message.empty()) Say(report.message);
  switch (report.kind) {
    case ExitKind::kExited:
      return static_cast<int>(report.value & 255);
    case ExitKind::kSignalled:
      return static_cast<int>(128 + (report.value & 127));
    case ExitKind::kCannotRun:
      Say("cannot run " + report.message);
      return kCannotRun;
    case ExitKind::kNotFound:
      Say(report.message);
      return kNotFound;
  }
  return kOwnError;
}

int RunCommandIn(MachineLink* link, UniqueFd agent, const Options& options,
                 const ExecRequest& request) {
  const SessionEnd end =
      RunSession(std::move(agent), request, options.timeout_ms, [link] { link->SayNotes(); });
  link->SayNotes();
  if (end.timed_out) {
    Say(fmt::format("the command was ended after its time ({} s)", options.timeout_ms / 1000.0));
    return kTimedOut;
  }
  if (end.lost) Fail("the machine ended before the command did: {}", link->WhyEnded());
  if (end.forced) {
    Say("the command was interrupted");
    return 128 + LastInterrupt();
  }
  return StatusOf(end.report);
}

// Whatever happened, nothing of an ephemeral machine stays, even if its supervisor was killed.
class EndOfMachine {
 public:
  EndOfMachine(MachineStore* store, const MachineRecord& record, MachineLink* link)
      : store_(store), name_(record.ephemeral ? record.name : ""), link_(link) {}
  ~EndOfMachine() {
    try {
      if (!released_) {
        link_->Stop(InterruptCount() > 1);
        // Only when the supervisor was killed is anything of it left.
        if (!name_.empty()) LockStopped(store_, name_);
      }
      store_->Reap();
    } catch (const std::exception& error) {
      Say(error.what());
    }
  }
  void Release() {
    link_->Release();
    released_ = true;
  }

 private:
  MachineStore* store_;
  const std::string name_;  // of an ephemeral machine
  MachineLink* link_;
  bool released_ = false;
};

[[noreturn]] void StoppedTooSoon(const std::string& name) {
  Fail("the machine {} was stopped before it was ready", name);
}

// Waits until a machine that we start again is ready, and leaves it to itself.
MachineLink StartAgain(MachineStore* store, const MachineRecord& record, UniqueFd lock) {
  store->Write(record);
  MachineLink link = MachineLink::Start(*store, record, std::move(lock));
  EndOfMachine end(store, record, &link);
  if (!link.WaitReady(ReadyTimeout(record))) StoppedTooSoon(record.name);
  end.Release();
  return link;
}

// Starts a kept machine again.
MachineLink StartKept(MachineStore* store, MachineRecord record, const std::string& why_not_kvm,
                      UniqueFd lock) {
  if (access(record.image_file.c_str(), R_OK) != 0) {
    Fail("the image of {} is no longer in the cache ({}): the machine cannot be started",
         record.name, record.image_file);
  }
  record.command.clear();  // it was for the first start
  const std::string failed = FileTail(store->FolderOf(record.name) / kFailedFile, 4096);
  if (!failed.empty()) Say(fmt::format("the machine {} had ended: {}", record.name, failed));
  std::fputs(fmt::format("Starting machine ({})...\n", record.name).c_str(), stderr);
  SayWhatItRunsOn(record, why_not_kvm);
  try {
    return StartAgain(store, record, std::move(lock));
  } catch (const KvmFailure& failure) {
    RunEmulated(failure, &record);
  }
  lock = LockStopped(store, record.name);
  if (!lock.valid()) Fail("the machine {} was removed", record.name);
  return StartAgain(store, record, std::move(lock));
}

// A connection to a machine that is ready. Nothing while somebody else starts or stops it: ask
// again.
std::optional<MachineLink> Enter(MachineStore* store, const std::string& name) {
  MachineRecord record = store->Get(name).record;
  if (store->Locked(name)) {
    std::optional<MachineLink> link = MachineLink::Connect(store->FolderOf(name), name);
    if (link && !link->WaitReady(ReadyTimeout(record))) link.reset();
    return link;
  }
  // Before the lock is taken: it may have to be fetched, and tried.
  record.kernel = EnsureKernel(CacheFolder()).folder;
  const std::string why_not_kvm = ChooseWhatItRunsOn(&record);
  UniqueFd lock = store->Lock(name);
  if (!lock.valid()) return std::nullopt;
  return StartKept(store, std::move(record), why_not_kvm, std::move(lock));
}

// A new machine, from its folder to the end of its command, or until it is left to itself.
int StartAndRun(MachineStore* store, const Options& options, const MachineRecord& record) {
  UniqueFd lock = store->Create(record);
  if (!record.ephemeral) MakeChangesDisk(*store, record.name);
  MachineLink link = MachineLink::Start(*store, record, std::move(lock));
  EndOfMachine end(store, record, &link);
  bool ready = false;
  try {
    ready = link.WaitReady(ReadyTimeout(record));
  } catch (...) {
    // A kept machine that never ran is of no use to anybody.
    if (!record.ephemeral) {
      link.Stop(true);
      if (const UniqueFd stopped = store->Lock(record.name); stopped.valid())
        store->Remove(record.name);
    }
    throw;
  }
  if (!ready) StoppedTooSoon(record.name);
  if (!options.detach) {
    UniqueFd agent = link.OpenExec();
    if (!agent.valid()) StoppedTooSoon(record.name);
    return RunCommandIn(&link, std::move(agent), options,
                        MakeRequest(options, record, record.command));
  }
  end.Release();
  Say(fmt::format("the machine {} runs", record.name));
  return 0;
}

}  // namespace

int RunMachine(const Options& options) {
  MachineStore store(StateFolder());
  store.Reap();
  const HostAbilities host = AskHost();
  MachineRecord record =
      DescribeMachine(options, host, options.name.empty() ? NewMachineName() : options.name);
  CheckPrograms(record, host);
  if (store.Find(record.name)) Fail("there is a machine named '{}' already", record.name);
  TakeImage(options, &record);
  const std::string why_not_kvm = ChooseWhatItRunsOn(&record);
  std::fputs(
      fmt::format("Starting {}machine ({})...\n", record.ephemeral ? "ephemeral " : "", record.name)
          .c_str(),
      stderr);
  SayWhatItRunsOn(record, why_not_kvm);
  try {
    return StartAndRun(&store, options, record);
  } catch (const KvmFailure& failure) {
    RunEmulated(failure, &record);
  }
  return StartAndRun(&store, options, record);
}

int ExecInMachine(const Options& options) {
  MachineStore store(StateFolder());
  store.Reap();
  const std::string name = options.names.front();
  Progress progress("waiting for the machine " + name);
  const auto give_up = std::chrono::steady_clock::now() + kUndecidedLimit;
  while (true) {
    std::optional<MachineLink> link = Enter(&store, name);
    UniqueFd agent = link ? link->OpenExec() : UniqueFd();
    if (agent.valid()) {
      MachineRecord record = store.Get(name).record;
      record.env = MergeEnvironment(record.env, options.env);
      return RunCommandIn(&*link, std::move(agent), options,
                          MakeRequest(options, record, options.command));
    }
    CheckInterrupt();
    if (std::chrono::steady_clock::now() > give_up) {
      Fail("the machine {} is neither running nor stopped: its supervisor does not answer", name);
    }
    usleep(kAskAgainUs);
    progress.Tick();
  }
}

}  // namespace smolvm::machine
