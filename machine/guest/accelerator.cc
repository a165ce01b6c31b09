#include "machine/guest/accelerator.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <thread>

#include "machine/guest/trial.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"
#include "machine/util/interrupt.h"
#include "machine/util/progress.h"
#include "machine/util/tool.h"

namespace smolvm::machine {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Verdict, boot_id, qemu, kernel, works, cpu, reason, tried)

namespace {

namespace fs = std::filesystem;

// Some hosts (nested virtualisation) offer this capability and then refuse to set its register.
constexpr const char* kKvmCpus[] = {"host", "host,-arch-capabilities"};

constexpr std::chrono::milliseconds kAskAgain{50};

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string BootId() { return FirstLine(ReadFile("/proc/sys/kernel/random/boot_id")); }

std::string QemuIdentity() {
  const std::string path = FindProgram(kQemuProgram);
  if (path.empty()) Fail("the program '{}' is missing; install it", kQemuProgram);
  return path + ": " + FirstLine(RunTool({path, "--version"}).out);
}

// One file a kernel: its folder is named by its version.
fs::path VerdictFile(const fs::path& kernel_image, const fs::path& cache) {
  return cache / "accelerator" / (kernel_image.parent_path().filename().string() + ".json");
}

std::optional<Verdict> ReadVerdict(const fs::path& file) {
  if (access(file.c_str(), F_OK) != 0) return std::nullopt;
  try {
    return nlohmann::json::parse(ReadFile(file)).get<Verdict>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // damaged: it is tried again
  }
}

// Whoever comes first tries KVM, the others wait for what comes of it.
UniqueFd LockVerdicts(const fs::path& folder) {
  MakeFolders(folder);
  Progress progress("waiting for another machine's trial of KVM");
  while (true) {
    UniqueFd lock = LockFile(folder / "lock", false);
    if (lock.valid()) return lock;
    CheckInterrupt();
    progress.Tick();
    std::this_thread::sleep_for(kAskAgain);
  }
}

std::string KvmDevice() {
  const char* other = std::getenv("SMOLVM_KVM_DEVICE");
  return other != nullptr && *other != '\0' ? other : "/dev/kvm";
}

void Keep(const Verdict& verdict, const fs::path& file) {
  const nlohmann::json json = verdict;
  WriteFileAtomically(file,
                      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// Of now: nothing tried yet.
Verdict Premises(const fs::path& kernel_image) {
  Verdict verdict;
  verdict.boot_id = BootId();
  verdict.qemu = QemuIdentity();
  verdict.kernel = kernel_image;
  return verdict;
}

bool SamePremises(const Verdict& a, const Verdict& b) {
  return a.boot_id == b.boot_id && a.qemu == b.qemu && a.kernel == b.kernel;
}

std::optional<Verdict> Kept(const Verdict& now, const fs::path& file) {
  std::optional<Verdict> kept = ReadVerdict(file);
  if (kept && !SamePremises(*kept, now)) kept.reset();
  return kept;
}

Verdict TryAndKeep(Verdict verdict, const fs::path& file) {
  for (const char* cpu : kKvmCpus) {
    const TrialResult result = BootTrial(verdict.kernel, cpu, file.parent_path());
    verdict.works = result.works;
    verdict.cpu = result.works ? cpu : "";
    verdict.reason = result.reason;
    if (result.works || !result.arch_capabilities_refused) break;
  }
  verdict.tried = std::time(nullptr);
  Keep(verdict, file);
  return verdict;
}

}  // namespace

AcceleratorWish ParseAcceleratorWish(const std::string& text, const std::string& where) {
  if (text == "auto") return AcceleratorWish::kAuto;
  if (text == "kvm") return AcceleratorWish::kKvm;
  if (text == "tcg") return AcceleratorWish::kTcg;
  Fail("{}: '{}' is not an accelerator; auto, kvm and tcg are", where, text);
}

const char* NameOf(AcceleratorWish wish) {
  switch (wish) {
    case AcceleratorWish::kKvm:
      return "kvm";
    case AcceleratorWish::kTcg:
      return "tcg";
    case AcceleratorWish::kAuto:
      break;
  }
  return "auto";
}

AcceleratorWish ChosenWish(const std::string& option) {
  if (!option.empty()) return ParseAcceleratorWish(option, "--accelerator");
  const char* variable = std::getenv("SMOLVM_ACCELERATOR");
  if (variable == nullptr || *variable == '\0') return AcceleratorWish::kAuto;
  return ParseAcceleratorWish(variable, "SMOLVM_ACCELERATOR");
}

std::string WhyNoKvmDevice() {
  const std::string device = KvmDevice();
  if (UniqueFd(open(device.c_str(), O_RDWR | O_CLOEXEC)).valid()) return {};
  if (errno == ENOENT) return fmt::format("{} is absent", device);
  return fmt::format("{} cannot be opened by this user: {}", device, ErrnoText());
}

std::optional<Verdict> KeptVerdict(const fs::path& kernel_image, const fs::path& cache) {
  return Kept(Premises(kernel_image), VerdictFile(kernel_image, cache));
}

Verdict TryKvm(const fs::path& kernel_image, const fs::path& cache) {
  const fs::path file = VerdictFile(kernel_image, cache);
  const UniqueFd lock = LockVerdicts(file.parent_path());
  return TryAndKeep(Premises(kernel_image), file);
}

void KeepFailure(const fs::path& kernel_image, const fs::path& cache, const std::string& reason) {
  const fs::path file = VerdictFile(kernel_image, cache);
  const UniqueFd lock = LockVerdicts(file.parent_path());
  Verdict verdict = Premises(kernel_image);
  verdict.reason = reason;
  verdict.tried = std::time(nullptr);
  Keep(verdict, file);
}

AcceleratorChoice ChooseAccelerator(AcceleratorWish wish, const fs::path& kernel_image,
                                    const fs::path& cache) {
  if (wish == AcceleratorWish::kTcg) return {Accelerator::kTcg, kTcgCpu, "TCG was asked for"};
  std::string reason = WhyNoKvmDevice();
  if (reason.empty()) {
    const fs::path file = VerdictFile(kernel_image, cache);
    const UniqueFd lock = LockVerdicts(file.parent_path());
    const Verdict now = Premises(kernel_image);
    std::optional<Verdict> verdict = Kept(now, file);
    if (!verdict || (!verdict->works && wish == AcceleratorWish::kKvm)) {
      verdict = TryAndKeep(now, file);
    }
    if (verdict->works) return {Accelerator::kKvm, verdict->cpu, ""};
    reason = "KVM does not run the guest's kernel here: " + verdict->reason;
  }
  if (wish == AcceleratorWish::kKvm) Fail("KVM was asked for: {}", reason);
  return {Accelerator::kTcg, kTcgCpu, reason};
}

}  // namespace smolvm::machine
