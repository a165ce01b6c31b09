// A trial of KVM: boots the guest's kernel with nothing but the agent in it, which says one word on
// the console and ends the machine.
#pragma once

#include <filesystem>
#include <string>

namespace smolvm::machine {

// The agent's argument, and what it then says.
inline constexpr char kTrialArgument[] = "trial";
inline constexpr char kTrialWord[] = "smolvm-trial: the kernel runs programs";

struct TrialResult {
  bool works = false;
  std::string reason;  // why not
  // The host refuses the register that says what its processors are free of
  // (IA32_ARCH_CAPABILITIES).
  bool arch_capabilities_refused = false;
};

// Takes a second where KVM works, and at most half a minute on a host that is very busy. Its files
// are temporary ones below `folder`. Throws Failure when nothing can be tried.
TrialResult BootTrial(const std::filesystem::path& kernel_image, const std::string& cpu,
                      const std::filesystem::path& folder);

// The line of QEMU's log that says that KVM gave up, which leaves the machine paused for ever;
// empty when there is none.
std::string KvmGaveUp(const std::string& qemu_log);

}  // namespace smolvm::machine
