// QEMU's command line for a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smolvm::machine {

#if defined(__aarch64__)
inline constexpr char kQemuProgram[] = "qemu-system-aarch64";
#else
inline constexpr char kQemuProgram[] = "qemu-system-x86_64";
#endif

enum class Accelerator { kKvm, kTcg };
inline const char* NameOf(Accelerator accelerator) {
  return accelerator == Accelerator::kKvm ? "kvm" : "tcg";
}
// What -cpu is without KVM.
inline constexpr char kTcgCpu[] = "max";
enum class VsockKind {
  kKernel,  // /dev/vhost-vsock
  kOurs,    // our vhost-user device
};

struct HostAbilities {
  Accelerator accelerator = Accelerator::kTcg;  // as accelerator.h chooses it
  std::string cpu = kTcgCpu;                    // QEMU's -cpu, chosen with it
  VsockKind vsock = VsockKind::kOurs;
  uint32_t tsc_khz = 0;  // of the host, for TCG; 0: not known
};
// What this user may open on this host. The accelerator is another question.
HostAbilities AskHost();

struct QemuOptions {
  HostAbilities host;
  std::string name;
  std::string kernel, initramfs, image_disk;
  std::string changes_disk;  // "" for an ephemeral machine
  std::string vsock_socket;  // of our device
  std::string console_log;
  std::string qmp_socket;  // where QEMU tells what the machine does
  uint32_t memory_mib = 0;
  uint32_t cpus = 1;
  uint32_t cid = 3;
  bool net = false;
};
std::vector<std::string> QemuCommand(const QemuOptions& options);

// A machine on KVM with nothing in it but its console, for a trial (trial.h).
std::vector<std::string> TrialCommand(const std::string& kernel, const std::string& initramfs,
                                      const std::string& console_log, const std::string& cpu);
// QEMU's options for the host's accelerator and processor.
std::vector<std::string> AcceleratorOptions(const HostAbilities& host);
// What a kernel under TCG must be told of its clock, with a space in front; "" under KVM.
std::string ClockWords(const HostAbilities& host);

}  // namespace smolvm::machine
