#include "machine/supervise/helpers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "machine/supervise/qmp.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/paths.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

constexpr char kQemu[] = "qemu";
constexpr char kDevice[] = "vsock-device";
constexpr char kDaemon[] = "cuda-daemon";
constexpr int kStopGraceMs = 2000;
constexpr size_t kLogTail = 4096;
// QEMU prints the registers of each processor after the line that says why it stopped.
constexpr size_t kQemuLogTail = 256 << 10;
constexpr unsigned kCudaGuestPort = 7000;
// The daemon is this machine's alone: all its sessions may be the machine's.
constexpr unsigned kMaxSessions = 64;

std::string LastLine(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  const size_t line = text.rfind('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

}  // namespace

std::string Helpers::SocketPath(const char* name) const {
  const std::string path = folder_ / name;
  return path.size() <= 100 ? path : name;
}

void Helpers::Start(const std::string& name, const std::vector<std::string>& argv) {
  const std::string log = folder_ / (name + ".log");
  unlink(log.c_str());
  helpers_.push_back({name, log, StartChild(argv, log, folder_)});
}

void Helpers::StartCudaDaemon() {
  const std::string listen = host_.vsock == VsockKind::kKernel
                                 ? fmt::format("vsock:{}", record_.cuda_port)
                                 : "unix:" + SocketPath(kCudaSocket);
  std::vector<std::string> argv = {FindOwnProgram("smolvm-cuda-daemon", "SMOLVM_CUDA_DAEMON"),
                                   "--listen", listen, "--max-sessions-per-peer",
                                   std::to_string(kMaxSessions)};
  // Every guest of the host can reach the port.
  if (host_.vsock == VsockKind::kKernel)
    argv.insert(argv.end(), {"--peer-cid", std::to_string(cid_)});
  Start(kDaemon, argv);
}

void Helpers::RestartCudaDaemon() {
  const fs::path log = folder_ / (std::string(kDaemon) + ".log");
  std::error_code ignored;
  fs::rename(log, log.string() + ".old", ignored);
  StartCudaDaemon();
}

bool Helpers::CudaDaemonServes() const {
  return FileTail(folder_ / (std::string(kDaemon) + ".log"), kLogTail).find("event=ready") !=
         std::string::npos;
}

void Helpers::StartVsockDevice() {
  if (host_.vsock == VsockKind::kKernel) return;
  std::vector<std::string> argv = {
      FindOwnProgram("smolvm-vsock-device", "SMOLVM_VSOCK_DEVICE"),
      "--socket",
      SocketPath(kVsockSocket),
      "--cid",
      std::to_string(cid_),
      "--once",
      "--forward",
      fmt::format("{}=unix:{}", record_.agent_port, SocketPath(kAgentSocket))};
  if (record_.cuda) {
    argv.insert(argv.end(),
                {"--forward", fmt::format("{}=unix:{}", kCudaGuestPort, SocketPath(kCudaSocket))});
  }
  Start(kDevice, argv);
}

void Helpers::StartQemu() {
  QemuOptions options;
  options.host = host_;
  options.name = record_.name;
  options.kernel = record_.kernel + "/vmlinuz";
  options.initramfs = folder_ / kInitramfs;
  options.image_disk = record_.image_file;
  if (!record_.ephemeral) options.changes_disk = folder_ / kChangesDisk;
  options.vsock_socket = SocketPath(kVsockSocket);
  options.console_log = folder_ / kConsoleLog;
  options.qmp_socket = SocketPath(kQmpSocket);
  options.memory_mib = record_.memory_mib;
  options.cpus = record_.cpus;
  options.cid = cid_;
  options.net = record_.net;
  fcntl(lock_, F_SETFD, 0);  // for this child alone
  try {
    Start(kQemu, QemuCommand(options));
  } catch (...) {
    fcntl(lock_, F_SETFD, FD_CLOEXEC);
    throw;
  }
  fcntl(lock_, F_SETFD, FD_CLOEXEC);
}

bool Helpers::ReadyForQemu() const {
  if (host_.vsock == VsockKind::kKernel) return true;
  if (record_.cuda && access((folder_ / kCudaSocket).c_str(), F_OK) != 0) return false;
  return FileTail(folder_ / (std::string(kDevice) + ".log"), kLogTail).find("ready") !=
         std::string::npos;
}

std::optional<Helpers::Death> Helpers::Collect() {
  int status = 0;
  const pid_t pid = waitpid(-1, &status, WNOHANG);
  if (pid <= 0) return std::nullopt;
  Death death{pid};
  const auto found = std::find_if(helpers_.begin(), helpers_.end(),
                                  [&](const Helper& helper) { return helper.pid == pid; });
  if (found == helpers_.end()) return death;
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with status {}", WEXITSTATUS(status));
  const bool daemon = found->name == kDaemon;
  // A daemon that was killed has said nothing about it: its last line is about something else.
  const std::string line =
      daemon && WIFSIGNALED(status) ? "" : LastLine(FileTail(found->log, kLogTail));
  const std::string what = found->name == kQemu     ? "QEMU"
                           : found->name == kDevice ? "the vsock device"
                                                    : "the CUDA daemon";
  death.known = true;
  death.qemu = found->name == kQemu;
  death.daemon = daemon;
  death.message = fmt::format("{} {}{}{}", what, how, line.empty() ? "" : ": ", line);
  helpers_.erase(found);
  return death;
}

std::string Helpers::QemuLog() const {
  return FileTail(folder_ / (std::string(kQemu) + ".log"), kQemuLogTail);
}

bool Helpers::QemuRuns() const {
  return std::any_of(helpers_.begin(), helpers_.end(),
                     [](const Helper& helper) { return helper.name == kQemu; });
}

void Helpers::StopAll() {
  // QEMU has nothing to say goodbye to; the others may have files of their own to take away.
  for (const Helper& helper : helpers_) kill(helper.pid, helper.name == kQemu ? SIGKILL : SIGTERM);
  for (int waited = 0; !helpers_.empty(); waited += 10) {
    std::erase_if(helpers_,
                  [](const Helper& helper) { return waitpid(helper.pid, nullptr, WNOHANG) != 0; });
    if (waited == kStopGraceMs) {
      for (const Helper& helper : helpers_) kill(helper.pid, SIGKILL);
    }
    if (!helpers_.empty()) usleep(10000);
  }
}

}  // namespace smolvm::machine
