// Which accelerator a machine runs on: KVM where this host's KVM was seen to boot this guest's
// kernel, else TCG, which works everywhere and is slow.
//
// That /dev/kvm can be opened says little: there are hosts (nested and software virtualisation,
// containers with a passed-through device, old firmware) where QEMU aborts, or the kernel never
// prints a word. So the first machine boots the same kernel with nothing in it (trial.h), and what
// came of it is kept in the cache until the host is booted again or QEMU or the kernel change:
// docs/decisions/kvm-is-believed-when-it-has-booted.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "machine/guest/qemu.h"

namespace smolvm::machine {

enum class AcceleratorWish { kAuto, kKvm, kTcg };

// "auto", "kvm" or "tcg"; `where` names the setting in the message. Throws Failure.
AcceleratorWish ParseAcceleratorWish(const std::string& text, const std::string& where);
const char* NameOf(AcceleratorWish wish);
// What --accelerator says (a kept machine's, when it was made), else $SMOLVM_ACCELERATOR, else
// auto. Throws Failure.
AcceleratorWish ChosenWish(const std::string& option = "");

// What a trial of KVM showed, and what it is true of.
struct Verdict {
  std::string boot_id;  // of the host
  std::string qemu;     // path and version
  std::string kernel;   // the guest's, by path
  bool works = false;
  std::string cpu;     // the -cpu that worked
  std::string reason;  // why it does not work
  int64_t tried = 0;   // seconds since 1970
};

struct AcceleratorChoice {
  Accelerator accelerator = Accelerator::kTcg;
  std::string cpu = kTcgCpu;  // for QEMU's -cpu
  std::string reason;         // why it is not KVM
};

// Tries KVM if that is wanted and nothing is known; a wish for kvm tries it again where it failed
// before. Programs that ask at the same time wait for one trial. Throws Failure when kvm is wished
// for and does not work.
AcceleratorChoice ChooseAccelerator(AcceleratorWish wish, const std::filesystem::path& kernel_image,
                                    const std::filesystem::path& cache);

// What is known of KVM with this kernel, with nothing tried: empty when no trial has been made.
std::optional<Verdict> KeptVerdict(const std::filesystem::path& kernel_image,
                                   const std::filesystem::path& cache);
// Tries KVM whatever is known, and keeps what came of it.
Verdict TryKvm(const std::filesystem::path& kernel_image, const std::filesystem::path& cache);
// A machine failed on a KVM that passed its trial: from now on it counts as one that does not work.
void KeepFailure(const std::filesystem::path& kernel_image, const std::filesystem::path& cache,
                 const std::string& reason);

// Why this user has no KVM at all; empty when /dev/kvm can be opened. $SMOLVM_KVM_DEVICE names
// another file, for tests on hosts without one.
std::string WhyNoKvmDevice();

}  // namespace smolvm::machine
