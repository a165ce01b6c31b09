// The daemon's own `vhost-user:` listener with a real guest: QEMU connects to the device that the
// daemon runs, and the probe in the guest reaches the CUDA port through it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/vm/direct_vm.h"

namespace smolvm::vsock_vm {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

class DaemonVm : public DirectVm {
 protected:
  // The probe, the guest's library, and what both need of this host.
  std::string MakeTree() {
    std::string tree = dir_ + "/tree";
    const std::string make = fmt::format(
        "mkdir -p {0}/bin {0}/opt/smolvm-cuda && cp {1} {0}/bin/cuda-probe && "
        "cp -L {2} {0}/opt/smolvm-cuda/libcuda.so.1 && "
        "for f in $(ldd {1} {2} | sed -n 's/.*[[:space:]]\\(\\/[^ ]*\\) (0x.*/\\1/p' | sort -u); "
        "do "
        "cp -L --parents $f {0}/ || exit 1; done",
        tree, SMOLVM_CUDA_PROBE, SMOLVM_GUEST_CUDA);
    EXPECT_EQ(std::system(make.c_str()), 0);
    return tree;
  }
  std::string DaemonLog() const { return Slurp(dir_ + "/daemon.log"); }
};

TEST_F(DaemonVm, TheProbeReachesTheDaemonThroughItsOwnDevice) {
  MakeInitramfs(SMOLVM_DAEMON_VM_INIT, MakeTree());
  device_ = Start(
      {SMOLVM_CUDA_DAEMON, "--listen", "vhost-user:" + dir_ + "/vhost", "--backend", "emulation"},
      dir_ + "/daemon.log");
  for (int i = 0; i < 600 && DaemonLog().find("event=ready") == std::string::npos; ++i) {
    std::this_thread::sleep_for(100ms);
  }
  ASSERT_THAT(DaemonLog(), HasSubstr("event=ready"));
  const pid_t qemu = Start(Qemu(384), dir_ + "/qemu.log");
  const int status = WaitFor(qemu, kBootLimit);
  const std::string log = Slurp(dir_ + "/qemu.log");
  for (const char* line : {"load_shim -> ok /opt/smolvm-cuda/libcuda.so.1", "cuInit -> 0",
                           "cuDeviceGetName -> 0 name = smolvm CPU emulation device",
                           "roundtrip all bytes match: True"}) {
    EXPECT_THAT(log, HasSubstr(line));
  }
  // Without the kernel compiler the probe's last step fails, and says so.
  EXPECT_THAT(log, HasSubstr(KERNELS_RUN ? "match: True\r\nguest: the probe ended with 0"
                                         : "vector_add -> 801"));
  EXPECT_EQ(status, KERNELS_RUN ? 3 : 5) << log;
  EXPECT_THAT(DaemonLog(), HasSubstr("event=session_started session=1"));
  EXPECT_THAT(DaemonLog(), HasSubstr("listen=vhost-user:"));
}

}  // namespace
}  // namespace smolvm::vsock_vm
