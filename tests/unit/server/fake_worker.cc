// A worker with a backend that does what the daemon's tests need. The library's name says how
// loading it goes: "good", "bad" (an error), "crash", "slow" (200 ms), or a path of a file: good
// while it exists.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <map>

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

class FakeHandler : public session::Handler {
 public:
  const session::CallTraits* Traits(uint32_t id) const override {
    static const session::CallTraits traits{"fake", 1024, 1 << 20, false, true};
    return id >= kFakeEcho && id <= kFakeOpenFds ? &traits : nullptr;
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
        call.reply() =
            std::to_string(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
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
