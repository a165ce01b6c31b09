// QEMU's command line for a machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smolvm::machine {

enum class Accelerator { kKvm, kTcg };
enum class VsockKind {
  kKernel,  // /dev/vhost-vsock
  kOurs,    // our vhost-user device
};

struct HostAbilities {
  Accelerator accelerator = Accelerator::kTcg;
  VsockKind vsock = VsockKind::kOurs;
  uint32_t tsc_khz = 0;  // of the host, for TCG; 0: not known
};
// What this user may open on this host.
HostAbilities AskHost();

struct QemuOptions {
  HostAbilities host;
  std::string name;
  std::string kernel, initramfs, image_disk;
  std::string changes_disk;  // "" for an ephemeral machine
  std::string vsock_socket;  // of our device
  std::string console_log;
  uint32_t memory_mib = 0;
  uint32_t cpus = 1;
  uint32_t cid = 3;
  bool net = false;
};
std::vector<std::string> QemuCommand(const QemuOptions& options);

}  // namespace smolvm::machine
