// A worker with a backend that does what the daemon's tests need. The library's name says how
// loading it goes: "good", "bad" (an error), "crash", "slow" (200 ms), or a path of a file: good
// while it exists.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <thread>

#include "host-daemon/emulation/device/address_space.h"
#include "host-daemon/session/session.h"
#include "host-daemon/worker/backend.h"
#include "host-daemon/worker/worker.h"
#include "tests/unit/server/fake_calls.h"

namespace smolvm::worker {
namespace {

// As a crash ends a process that no sanitizer watches.
void Crash() {
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
}

// Looked at one by one: the sandbox closes /proc.
int CountFds() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

std::string Outcome(const char* what, bool done) {
  return std::string(what) + "=" + (done ? "done" : strerrorname_np(errno)) + " ";
}

bool TryFork() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  return pid > 0 && waitpid(pid, nullptr, 0) == pid;
}

bool TryExec() {
  // A program that cannot be run, should it be tried.
  const char* argv[] = {"/dev/null", nullptr};
  execve(argv[0], const_cast<char**>(argv), environ);
  return errno == EACCES;  // it was tried
}

bool TryPtrace() {
  // Of a process that is not being traced.
  return ptrace(PTRACE_DETACH, getppid(), nullptr, nullptr) == 0 || errno == ESRCH;
}

bool TryOpen(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool TrySocket(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

// As the cache of compiled kernels is written.
bool TryCache(const std::string& folder) {
  return TryOpen(folder + "/new", O_WRONLY | O_CREAT | O_EXCL) &&
         rename((folder + "/new").c_str(), (folder + "/entry").c_str()) == 0 &&
         TryOpen(folder + "/entry", O_RDONLY) && unlink((folder + "/entry").c_str()) == 0;
}

// What a worker that compiles and runs kernels does need.
bool TryNeeded() {
  // Where the emulation library has compiled code.
  const char* at = getenv(emulation::kCodeAtVariable);
  void* code = at == nullptr ? nullptr : reinterpret_cast<void*>(strtoull(at, nullptr, 16));
  if (code == nullptr || mprotect(code, 4096, PROT_READ | PROT_WRITE) != 0 ||
      mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0) {
    return false;
  }
  bool ran = false;
  std::thread([&ran] { ran = true; }).join();
  return ran && raise(0) == 0;
}

std::string TryForbidden(const std::string& cache) {
  std::string text = Outcome("fork", TryFork());
  text += Outcome("exec", TryExec());
  text += Outcome("inet", TrySocket(AF_INET));
  text += Outcome("unix", TrySocket(AF_UNIX));
  text += Outcome("signal", kill(getppid(), 0) == 0);
  text += Outcome("unshare", unshare(CLONE_FS) == 0);
  text += Outcome("ptrace", TryPtrace());
  text += Outcome("read", TryOpen("/etc/passwd", O_RDONLY));
  text += Outcome("list", TryOpen("/proc/self/fd", O_RDONLY | O_DIRECTORY));
  text += Outcome("write", TryOpen(cache + "/../file", O_WRONLY | O_CREAT));
  text += Outcome("cache", TryCache(cache));
  return text + Outcome("needed", TryNeeded());
}

class FakeHandler : public session::Handler {
 public:
  const session::CallTraits* Traits(uint32_t id) const override {
    static const session::CallTraits traits{"fake", 1024, 1 << 20, false, true};
    return id >= kFakeEcho && id <= kFakeForbidden ? &traits : nullptr;
  }
  uint32_t Handle(session::Call& call) override {
    switch (call.header().call_id) {
      case kFakeEcho:
        call.reply().assign(call.args().data(), call.args().size());
        return 0;
      case kFakePid:
        call.reply() = std::to_string(getpid());
        return 0;
      case kFakeCrash:
        Crash();
        return 999;
      case kFakeExit:
        _exit(7);
      case kFakeBlock:
        call.AboutToBlock();
        [[fallthrough]];
      case kFakeStuck:
        for (;;) pause();
      case kFakeCallGuest:
        return call.session().CallGuest(call.args()) ? 0 : 999;
      case kFakeOpenFds:
        call.reply() = std::to_string(CountFds());
        return 0;
      case kFakeForbidden:
        call.reply() = TryForbidden(std::string(call.args().data(), call.args().size()));
        return 0;
    }
    return 999;
  }
  void BeforeReply(session::Call&) override {}
  void LaneEnds(uint32_t) override {}
};

class FakeBackend : public Backend {
 public:
  explicit FakeBackend(const BackendPolicy& policy) : policy_(policy) {}
  std::string Describe() const override {
    const char* memory = getenv("SMOLVM_CUDA_EMULATION_MEMORY");
    const char* gpus = getenv("CUDA_VISIBLE_DEVICES");
    return "memory_limit=" + std::to_string(policy_.memory_limit) +
           " emulation_memory=" + (memory == nullptr ? "unset" : memory) +
           " gpus=" + (gpus == nullptr ? "unset" : gpus);
  }
  void FillHello(const api::Hello&, api::HelloReply* reply) override {
    reply->driver_version = 13000;
    reply->devices.emplace_back().name = "fake device";
  }
  std::unique_ptr<session::Handler> MakeHandler(const api::Hello&) override {
    return std::make_unique<FakeHandler>();
  }

 private:
  const BackendPolicy policy_;
};

}  // namespace

std::unique_ptr<Backend> LoadBackend(const std::string& library, const BackendPolicy& policy,
                                     std::string* error) {
  if (library == "crash") Crash();
  if (library == "slow") usleep(200'000);
  if (library == "good" || library == "slow" || std::filesystem::exists(library)) {
    return std::make_unique<FakeBackend>(policy);
  }
  *error = "library " + library + " is no good";
  return nullptr;
}

}  // namespace smolvm::worker

int main(int argc, char** argv) { return smolvm::worker::WorkerMain(argc, argv); }
