#include "host-daemon/worker/worker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#include <sanitizer/common_interface_defs.h>
#endif

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "host-daemon/emulation/device/address_space.h"
#include "host-daemon/emulation/device/settings.h"
#include "host-daemon/limits/address_space.h"
#include "host-daemon/sandbox/sandbox.h"
#include "host-daemon/session/session.h"
#include "host-daemon/worker/backend.h"
#include "host-daemon/worker/control.h"
#include "host-daemon/worker/worker_options.h"
#include "protocol/log/log.h"

namespace smolvm::worker {
namespace {

constexpr uint32_t kInvalidValue = 1;            // CUDA_ERROR_INVALID_VALUE
constexpr uint32_t kSystemDriverMismatch = 803;  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH

void PrepareProcess() {
  // The daemon's end is noticed on the control socket too; this is for a worker that hangs.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that may not grow any more
  // A core dump would keep the guest's socket open for as long as it takes to write.
  const rlimit none{};
  setrlimit(RLIMIT_CORE, &none);
  fcntl(kControlFd, F_SETFD, FD_CLOEXEC);
}

// Makes a file in memory of a standard stream, where kernels' printf (stdout) and failed assertions
// (stderr) go. -1 when that fails.
int MakeAFileOf(int stream) {
  const int fd = memfd_create("device-output", MFD_CLOEXEC);
  if (fd < 0 || dup2(fd, stream) < 0) return -1;
  return fd;
}

// Where the emulation library puts compiled code, which alone may become executable in the sandbox:
// aligned to its size, so that the filter of system calls can tell. 0 when there is no room.
uintptr_t ReserveCode() {
  constexpr uintptr_t kBytes = emulation::kCodeBytes;
  void* all =
      mmap(nullptr, 2 * kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<uintptr_t>(all);
  const uintptr_t code = (begin + kBytes - 1) & ~(kBytes - 1);
  if (code != begin) munmap(all, code - begin);
  munmap(reinterpret_cast<void*>(code + kBytes), begin + kBytes - code);
  setenv(emulation::kCodeAtVariable, fmt::format("{:x}", code).c_str(), 1);
  return code;
}

// What a guest's kernel says on stderr is the guest's to read: in the daemon's log it could forge
// lines. So the log keeps the descriptor that stderr was, here and in the libraries of ours.
bool KeepLogApartFromStderr() {
  const int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  __sanitizer_set_report_fd(reinterpret_cast<void*>(intptr_t{fd}));
#endif
  return fd >= 0 && setenv("SMOLVM_CUDA_LOG_FD", std::to_string(fd).c_str(), 1) == 0;
}

void SetUnlessEmpty(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

std::unique_ptr<Backend> LoadDriver(const WorkerOptions& options, const BackendPolicy& policy,
                                    std::string* error) {
  if (!options.gpus.empty()) {
    // By bus, as nvidia-smi numbers them; the driver's own default is by speed.
    setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
    setenv("CUDA_VISIBLE_DEVICES", options.gpus.c_str(), 1);
  }
  auto backend = LoadBackend(options.driver, policy, error);
  // Drivers reserve much; one that is not there at all has not tried.
  if (backend == nullptr && error->find("No such file") == std::string::npos) {
    *error += AddressSpaceNote();
  }
  return backend;
}

// Told before it is tried: what comes of too little depends on where it ends, and a session that
// began would be cut off.
bool HasAddressSpace(std::string* error) {
  std::string ignored;  // the library's own to tell
  const auto settings = emulation::ReadSettings(&ignored);
  const size_t device_bytes = settings.value_or(emulation::Settings{}).memory_bytes;
  *error = AddressSpaceDenial(
      fmt::format("a worker with the emulation device (of {} MiB)", device_bytes >> 20),
      emulation::AddressSpaceNeeded(device_bytes));
  return error->empty();
}

std::unique_ptr<Backend> LoadEmulation(const WorkerOptions& options, BackendPolicy policy,
                                       uintptr_t* code, std::string* error) {
  if (!options.gpus.empty() && options.gpus != "0") {
    *error = "--gpus " + options.gpus + ": the emulation device is device 0, and the only one";
    return nullptr;
  }
  // Why a module or a kernel was refused is said in the library, and belongs into the daemon's log;
  // its "info" is a line for each kernel.
  const bool has_most = options.log_level == "info";
  setenv("SMOLVM_CUDA_LOG", has_most ? "warn" : options.log_level.c_str(), 0);
  // Chosen above: what the daemon's environment says is about real GPUs.
  unsetenv("CUDA_VISIBLE_DEVICES");
  SetUnlessEmpty("SMOLVM_CUDA_EMULATION_MEMORY", options.emulation_memory);
  SetUnlessEmpty("SMOLVM_CUDA_EMULATION_CC", options.emulation_compute_capability);
  SetUnlessEmpty("SMOLVM_CUDA_EMULATION_CACHE", options.emulation_cache);
  SetUnlessEmpty("SMOLVM_CUDA_KERNEL_TIMEOUT_MS", options.kernel_timeout_ms);
  SetUnlessEmpty("SMOLVM_CUDA_COMPILE_LIMIT_MS", options.compile_limit_ms);
  SetUnlessEmpty("SMOLVM_CUDA_KERNEL_MEMORY", options.kernel_memory);
  if (!HasAddressSpace(error)) return nullptr;
  *code = ReserveCode();
  if (*code == 0) {
    *error = std::string("no addresses for compiled code: ") + strerror(errno);
    return nullptr;
  }
  policy.device_memory_is_addressable = true;
  auto backend = LoadBackend(options.emulation, policy, error);
  if (backend == nullptr && !options.emulation_memory.empty()) {
    *error += fmt::format("; perhaps --emulation-memory, here {}, is more than this host can give",
                          options.emulation_memory);
  }
  return backend;
}

// Of the emulation library, as it reads it: from the option, else from the daemon's environment.
std::string CacheFolder() {
  const char* folder = getenv("SMOLVM_CUDA_EMULATION_CACHE");
  return folder == nullptr || std::strcmp(folder, "off") == 0 ? "" : folder;
}

std::unique_ptr<Backend> Load(const WorkerOptions& options, const BackendPolicy& policy,
                              std::string* name, uintptr_t* code, std::string* error) {
  std::unique_ptr<Backend> backend;
  if (options.backend != "emulation") {
    *name = "driver";
    backend = LoadDriver(options, policy, error);
    if (backend != nullptr || options.backend == "driver") return backend;
    log::Debug("event=driver_unusable reason={}", log::Quote(*error));
  }
  const std::string driver_error = std::move(*error);
  error->clear();
  *name = "emulation";
  backend = LoadEmulation(options, policy, code, error);
  if (backend == nullptr && !driver_error.empty()) *error += "; driver: " + driver_error;
  return backend;
}

bool SendHelloReply(int fd, const api::HelloReply& reply) {
  std::string frame(wire::kFrameHeaderBytes, '\0');
  api::Encode(reply, &frame);
  wire::FrameHeader header;
  header.call_id = wire::kHelloReply;
  header.flags = wire::kFlagReply;
  header.args_length = static_cast<uint32_t>(frame.size() - wire::kFrameHeaderBytes);
  wire::StoreFrameHeader(header, frame.data());
  const char* from = frame.data();
  for (size_t left = frame.size(); left != 0;) {
    const ssize_t sent = send(fd, from, left, MSG_NOSIGNAL);
    if (sent < 0 && errno != EINTR) return false;
    if (sent < 0) continue;
    from += sent;
    left -= static_cast<size_t>(sent);
  }
  return true;
}

api::HelloReply NewReply() {
  api::HelloReply reply;
  reply.protocol_version = wire::kProtocolVersion;
  reply.daemon_version = SMOLVM_VERSION;
  return reply;
}

api::HelloReply AnswerTo(const ControlMessage& start, const api::Hello& hello, bool decoded,
                         Backend& backend) {
  api::HelloReply reply = NewReply();
  if (!decoded) {
    reply.status = kInvalidValue;
    reply.message = "malformed hello";
  } else if (hello.protocol_version != wire::kProtocolVersion) {
    reply.status = kSystemDriverMismatch;
    reply.message = fmt::format("the host speaks protocol {}, the guest {}", wire::kProtocolVersion,
                                hello.protocol_version);
  } else {
    reply.callback_token.assign(start.header.token, kTokenBytes);
    backend.FillHello(hello, &reply);
  }
  return reply;
}

// The daemon's socket was non-blocking while it read the hello; that is a property of the
// connection, not of the descriptor.
void MakeBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

void AttachCallback(session::Session& session, int fd) {
  MakeBlocking(fd);
  auto channel = std::make_unique<transport::Channel>(fd);
  if (SendHelloReply(fd, NewReply())) session.AttachCallbackChannel(std::move(channel));
}

// Its own thread, until the process ends: the daemon's messages, and its end.
void WatchDaemon(session::Session& session) {
  ControlMessage message;
  while (ReceiveControl(kControlFd, true, &message) == ControlResult::kGot) {
    if (message.header.type == ControlType::kCallback && message.fd >= 0) {
      AttachCallback(session, message.fd);
    } else if (message.fd >= 0) {
      close(message.fd);
    }
  }
  log::Warn("event=daemon_gone");
  _exit(0);
}

int Serve(ControlMessage start, Backend& backend) {
  MakeBlocking(start.fd);
  api::Hello hello;
  const bool decoded = api::Decode(start.text, &hello);
  const api::HelloReply reply = AnswerTo(start, hello, decoded, backend);
  const std::unique_ptr<session::Handler> handler =
      reply.status == 0 ? backend.MakeHandler(hello) : nullptr;
  auto channel = std::make_unique<transport::Channel>(start.fd);
  if (reply.status != 0) {
    log::Warn("event=guest_refused session={} status={} reason={}", start.header.session,
              reply.status, log::Quote(reply.message));
  }
  if (!SendHelloReply(start.fd, reply) || handler == nullptr) return 0;
  session::Session session(std::move(channel), *handler, {});
  std::thread(WatchDaemon, std::ref(session)).detach();
  session.Run();
  // Lanes may be blocked in the driver; the process ends without them.
  _exit(0);
}

}  // namespace

int WorkerMain(int argc, char** argv) {
  log::SetComponent("worker");
  WorkerOptions options;
  if (!ParseWorkerOptions(argc, argv, &options)) return 2;
  log::Level level;
  if (log::ParseLevel(options.log_level, &level)) log::SetThreshold(level);
  PrepareProcess();
  BackendPolicy policy;
  policy.memory_limit = options.memory_limit;
  policy.output_fd = MakeAFileOf(STDOUT_FILENO);
  policy.errors_fd = KeepLogApartFromStderr() ? MakeAFileOf(STDERR_FILENO) : -1;
  std::string name, error;
  uintptr_t code = 0;
  const bool has_files = policy.output_fd >= 0 && policy.errors_fd >= 0;
  if (!has_files) error = std::string("no memory file for output: ") + strerror(errno);
  const std::unique_ptr<Backend> backend =
      has_files ? Load(options, policy, &name, &code, &error) : nullptr;
  const bool sandbox = options.sandbox && name == "emulation";
  const sandbox::SandboxNeeds needs{.folder = CacheFolder(),
                                    .code = code,
                                    .code_bytes = emulation::kCodeBytes,
                                    .outputs = {policy.output_fd, policy.errors_fd}};
  const bool confined = backend != nullptr && sandbox && sandbox::EnterSandbox(needs, &error);
  if (sandbox && !confined && backend != nullptr) error += "; --sandbox off goes without";
  if (backend == nullptr || sandbox != confined) {
    SendControl(kControlFd, {.type = ControlType::kFailed}, error, -1, true);
    return 1;
  }
  const std::string description =
      "backend=" + name + " " + backend->Describe() + " sandbox=" + (confined ? "on" : "off");
  if (!SendControl(kControlFd, {.type = ControlType::kReady}, description, -1, true)) return 2;
  ControlMessage start;
  if (ReceiveControl(kControlFd, true, &start) != ControlResult::kGot ||
      start.header.type != ControlType::kStart || start.fd < 0) {
    _exit(0);  // the daemon ends, and has no use for this worker
  }
  SendControl(kControlFd, {.type = ControlType::kTaken}, "", -1, true);
  const int status = Serve(std::move(start), *backend);
  _exit(status);
}

}  // namespace smolvm::worker
