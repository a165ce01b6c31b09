// CUDA in machines: the probe in both forms, in two generations of glibc, through the daemon and a
// real AF_VSOCK connection.
#include <signal.h>
#include <unistd.h>

#include "tests/vm/machine_vm_support.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// What every run prints; the rest of the output is about kernels.
constexpr char kProbeLines[] =
    "load_shim -> ok /opt/smolvm-cuda/libcuda.so.1\n"
    "cuInit -> 0\n"
    "cuDeviceGetCount -> 0 count = 1\n"
    "cuDeviceGetName -> 0 name = smolvm CPU emulation device\n"
    "cuCtxCreate -> 0\n"
    "cuMemGetInfo -> 0 total MiB = 1024\n"
    "cuMemAlloc   -> 0\n"
    "cuMemcpyHtoD -> 0\n"
    "cuMemcpyDtoH -> 0\n"
    "roundtrip first 16 bytes match: True\n"
    "cuMemFree    -> 0\n"
    "roundtrip all bytes match: True\n";

class MachineCudaVmTest : public MachineVmTest {
 protected:
  void SetUp() override {
    MachineVmTest::SetUp();
    if (FindProgram("mmdebstrap").empty()) {
      GTEST_SKIP() << "skipped: mmdebstrap is not installed";
    }
    fs::create_directories(probe_);
    fs::copy_file(SMOLVM_CUDA_PROBE, probe_ / "cuda-probe");
    fs::copy_file(SMOLVM_PROBE_SCRIPT, probe_ / "cuda-probe.py");
    // The lines are those of the emulation device, whatever this host has.
    more_environment_ = {{"CUDA_VISIBLE_DEVICES", ""}};
  }
  std::string Mount() const { return probe_.string() + ":/probe:ro"; }

  const fs::path probe_ = folder_.path() / "probe";
};

TEST_F(MachineCudaVmTest, SeveralProgramsOneAfterAnotherAndAtOnce) {
  const std::string name = "smolskill-cuda";
  ToolResult result =
      Machine({"run", "--cuda", "--mem", "1024", "-I", "debian", "-v", Mount(), "-d", "-n", name});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("no NVIDIA driver here: --cuda uses the CPU emulation device"));
  const Words probe = {"exec", "-n", name, "--", "/probe/cuda-probe"};
  EXPECT_THAT(Machine(probe).out, HasSubstr(kProbeLines));
  EXPECT_THAT(Machine({"exec", "-n", name, "--", "python3", "/probe/cuda-probe.py"}).out,
              HasSubstr(kProbeLines));
  // The loader finds the library for programs that clear their environment.
  EXPECT_THAT(Machine({"exec", "-n", name, "--", "/sbin/ldconfig", "-p"}).out,
              HasSubstr("libcuda.so.1 (libc6,x86-64) => /opt/smolvm-cuda/libcuda.so.1"));

  // One is killed in the middle of it; the others do not notice.
  const fs::path first = folder_.path() / "first", second = folder_.path() / "second";
  const pid_t killed = StartMachine({"exec", "-n", name, "--timeout", "2s", "--", "sh", "-c",
                                     "while true; do /probe/cuda-probe; done"},
                                    first);
  const pid_t other = StartMachine(probe, second);
  Wait(other);
  EXPECT_THAT(FileTail(second, 10000), HasSubstr(kProbeLines));
  EXPECT_EQ(Wait(killed), 124);
  EXPECT_THAT(Machine(probe).out, HasSubstr(kProbeLines));

  for (const pid_t pid : Helpers()) {
    if (NameOf(pid) == "qemu-system-x86_64") kill(pid, SIGKILL);
  }
  for (int tenths = 0; tenths < 300 && !Helpers().empty(); ++tenths) usleep(100000);
  EXPECT_TRUE(Helpers().empty()) << "the daemon outlives its machine";
  EXPECT_EQ(Machine({"delete", "-n", name}).status, 0);
}

TEST_F(MachineCudaVmTest, AnOlderGlibc) {
  const ToolResult result = Machine({"run", "--cuda", "--mem", "1024", "-I", "debian/bullseye",
                                     "-v", Mount(), "--", "python3", "/probe/cuda-probe.py"});
  if (result.err.find("making a Debian tree (bullseye) failed") != std::string::npos) {
    GTEST_SKIP() << "skipped: this mirror does not serve bullseye: " << result.err;
  }
  EXPECT_THAT(result.out, HasSubstr(kProbeLines)) << result.err;
}

}  // namespace
}  // namespace smolvm::machine
