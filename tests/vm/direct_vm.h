// A guest that QEMU boots (-M microvm) straight from a kernel and an initramfs, with a vhost-user
// vsock device as its only way out.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "machine/guest/kernel.h"
#include "machine/guest/qemu.h"

namespace smolvm::vsock_vm {

// A boot and a few checks take about 15 s on an idle machine.
inline constexpr std::chrono::seconds kBootLimit{240};

// A command's stdout without its last newlines; "" when it fails.
std::string Output(const std::string& command);
// Starts `args` with its output in `log`; `ready`, if given, receives its stdout instead.
pid_t Start(const std::vector<std::string>& args, const std::string& log, int ready = -1);
// The exit status, or -1 if it had to be killed.
int WaitFor(pid_t pid, std::chrono::seconds limit);
std::string Slurp(const std::string& path);

class DirectVm : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Packs `init` as /init, with the modules that vsock needs and what is in the folder `tree`.
  void MakeInitramfs(const std::string& init, const std::string& tree = "");
  // QEMU's command line; the device listens at dir_/vhost, and the guest's exit status comes
  // through the debug port (status * 2 + 1).
  std::vector<std::string> Qemu(int memory_mib) const;

  machine::GuestKernel kernel_;
  machine::HostAbilities host_;  // with the accelerator that machines run on here
  std::string dir_;
  pid_t device_ = -1;  // ended with SIGTERM at the end of the test
};

}  // namespace smolvm::vsock_vm
