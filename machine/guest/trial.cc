#include "machine/guest/trial.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>

#include "machine/guest/cpio.h"
#include "machine/guest/qemu.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/interrupt.h"
#include "machine/util/paths.h"
#include "machine/util/progress.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr size_t kMaxAgent = 64 << 20;
constexpr size_t kMaxLog = 64 << 10;
// What the kernel prints first, long before it looks for a disk or a network.
constexpr char kFirstWords[] = "Linux version";

// How long the kernel may be silent, and take in all. A kernel that runs in circles uses a
// processor, which tells it from one that waits for its turn on a busy host; the second limits are
// for a machine that does nothing at all. A working KVM needs 0.1 s and 1 s.
constexpr Seconds kSilentProcessor{4}, kSilent{10}, kWholeProcessor{15}, kWhole{30};

void WriteTrialInitramfs(const fs::path& target) {
  CpioWriter cpio;
  cpio.AddFolder("dev");
  cpio.AddDevice("dev/console", 5, 1);
  cpio.AddFile("init",
               ReadFile(FindOwnProgram("smolvm-machine-agent", "SMOLVM_MACHINE_AGENT"), kMaxAgent),
               0755);
  WriteFileAtomically(target, cpio.Finish());
}

// Processor time of a child that has not been waited for.
Seconds ProcessorTime(pid_t pid) {
  const std::string stat = ReadFile(fmt::format("/proc/{}/stat", pid));
  const size_t name_end = stat.rfind(')');
  unsigned long user = 0, system = 0;
  if (name_end == std::string::npos ||
      std::sscanf(stat.c_str() + name_end + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) {
    return Seconds(0);
  }
  return Seconds(static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK)));
}

std::string FirstLineOf(const std::string& text) {
  const size_t end = text.find_first_of("\r\n");
  return text.substr(0, end);
}

class Trial {
 public:
  Trial(const fs::path& kernel_image, const std::string& cpu, const fs::path& folder)
      : console_(folder / "console.log"), log_(folder / "qemu.log") {
    WriteTrialInitramfs(folder / "initramfs");
    pid_ = StartChild(TrialCommand(kernel_image, folder / "initramfs", console_, cpu), log_, "");
  }
  ~Trial() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  TrialResult Run() {
    Progress progress("trying KVM");
    const Clock::time_point began = Clock::now();
    while (true) {
      CheckInterrupt();
      progress.Tick();
      // In this order: what it wrote before it ended counts.
      const bool ended = Ended();
      const std::string console = FileTail(console_, kMaxLog), log = FileTail(log_, kMaxLog);
      if (console.find(kTrialWord) != std::string::npos) return {true, "", false};
      if (const std::string line = KvmGaveUp(log); !line.empty()) return {false, line, false};
      if (ended) return Explain(log);
      const std::string late = TooLate(console, Clock::now() - began);
      if (!late.empty()) return {false, late, false};
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

 private:
  bool Ended() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) == pid_) pid_ = -1;
    return pid_ < 0;
  }

  TrialResult Explain(const std::string& log) const {
    const std::string how = WIFSIGNALED(status_)
                                ? fmt::format("was ended by signal {}", WTERMSIG(status_))
                                : fmt::format("ended with status {}", WEXITSTATUS(status_));
    const std::string line = FirstLineOf(log);
    return {false, fmt::format("QEMU {}{}{}", how, line.empty() ? "" : ": ", line),
            log.find("failed to set MSR 0x10a") != std::string::npos};
  }

  std::string TooLate(const std::string& console, Seconds passed) const {
    const Seconds used = ProcessorTime(pid_);
    if (console.find(kFirstWords) == std::string::npos) {
      if (used < kSilentProcessor && passed < kSilent) return {};
      return fmt::format("the kernel printed nothing in {:.0f} s", passed.count());
    }
    if (used < kWholeProcessor && passed < kWhole) return {};
    return fmt::format("the kernel ran no program in {:.0f} s", passed.count());
  }

  const fs::path console_, log_;
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace

std::string KvmGaveUp(const std::string& qemu_log) {
  for (const char* sign :
       {"KVM internal error", "kvm run failed", "KVM: entry failed", "KVM: unknown exit"}) {
    const size_t at = qemu_log.find(sign);
    if (at != std::string::npos) return FirstLineOf(qemu_log.substr(at));
  }
  return {};
}

TrialResult BootTrial(const fs::path& kernel_image, const std::string& cpu,
                      const fs::path& folder) {
  const TempFolder work(folder / "tmp");
  return Trial(kernel_image, cpu, work.path()).Run();
}

}  // namespace smolvm::machine
