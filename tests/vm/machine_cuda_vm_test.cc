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
    fs::copy_file(SMOLVM_CUDA_GUEST, probe_ / "guest");
    // The lines are those of the emulation device, whatever this host has.
    more_environment_ = {{"CUDA_VISIBLE_DEVICES", ""}};
  }
  std::string Mount() const { return probe_.string() + ":/probe:ro"; }
  std::vector<pid_t> HelpersNamed(const std::string& name) const {
    std::vector<pid_t> found;
    for (const pid_t pid : Helpers()) {
      if (NameOf(pid) == name) found.push_back(pid);
    }
    return found;
  }
  // Waits up to two minutes for the only machine's state of CUDA.
  bool WaitForCudaState(const std::string& state) {
    for (int tenths = 0; tenths < 1200; ++tenths) {
      const std::string list = Machine({"list", "--json"}).out;
      if (list.find("\"cuda_state\": \"" + state + "\"") != std::string::npos) return true;
      usleep(100000);
    }
    return false;
  }
  // The worker of the session that was started last and still runs, from the daemon's log; -1 when
  // there is none.
  pid_t ServingWorker(const std::string& name) const {
    const std::string log = FileTail(state_ / "smolvm/machines" / name / "cuda-daemon.log", 65536);
    const size_t line = log.rfind("event=session_started");
    const size_t at = line == std::string::npos ? line : log.find("worker=", line);
    return at == std::string::npos ? -1 : std::atoi(log.c_str() + at + 7);
  }

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

TEST_F(MachineCudaVmTest, ADaemonThatIsKilledIsStartedAgain) {
  const std::string name = "smolskill-restart";
  ToolResult result =
      Machine({"run", "--cuda", "--mem", "1024", "-I", "debian", "-v", Mount(), "-d", "-n", name});
  ASSERT_EQ(result.status, 0) << result.err;
  const fs::path output = folder_.path() / "program";
  const pid_t program = StartMachine({"exec", "-n", name, "--", "/probe/guest"}, output);
  ASSERT_TRUE(WaitForText(output, "session is up"));
  const std::vector<pid_t> daemons = HelpersNamed("smolvm-cuda-daemon");
  ASSERT_EQ(daemons.size(), 1u);
  kill(daemons[0], SIGKILL);
  // The program sees the error, and its user the reason.
  EXPECT_EQ(Wait(program), 0);
  EXPECT_THAT(FileTail(output, 10000), HasSubstr("failed with 999, then 999"));
  EXPECT_TRUE(WaitForText(output, "smolvm: the CUDA daemon was ended by signal 9; "));
  EXPECT_TRUE(WaitForCudaState("yes"));
  const std::vector<pid_t> fresh = HelpersNamed("smolvm-cuda-daemon");
  ASSERT_EQ(fresh.size(), 1u);
  EXPECT_NE(fresh[0], daemons[0]);
  EXPECT_THAT(Machine({"exec", "-n", name, "--", "/probe/cuda-probe"}).out, HasSubstr(kProbeLines));
  EXPECT_THAT(FileTail(state_ / "smolvm/machines" / name / "supervisor.log", 4096),
              HasSubstr("the CUDA daemon serves again"));

  // A worker that is killed ends its own program's session, and no other.
  const fs::path second = folder_.path() / "second";
  const pid_t other = StartMachine({"exec", "-n", name, "--", "/probe/guest"}, second);
  ASSERT_TRUE(WaitForText(second, "session is up"));
  const pid_t worker = ServingWorker(name);
  ASSERT_GT(worker, 0);
  kill(worker, SIGKILL);
  EXPECT_EQ(Wait(other), 0);
  EXPECT_THAT(FileTail(second, 10000), HasSubstr("failed with 999, then 999"));
  EXPECT_THAT(Machine({"exec", "-n", name, "--", "/probe/cuda-probe"}).out, HasSubstr(kProbeLines));
  EXPECT_EQ(HelpersNamed("smolvm-cuda-daemon"), fresh);
  EXPECT_EQ(Machine({"delete", "--force", "-n", name}).status, 0);
}

TEST_F(MachineCudaVmTest, ADaemonThatCannotBeStartedAgainIsGivenUp) {
  const std::string name = "smolskill-given-up";
  // A daemon that starts once.
  const fs::path daemon = folder_.path() / "daemon";
  WriteFileAtomically(daemon, "#!/bin/sh\nmkdir " + (folder_.path() / "once").string() +
                                  " || exit 3\nexec " SMOLVM_CUDA_DAEMON " \"$@\"\n");
  fs::permissions(daemon, fs::perms::owner_all);
  more_environment_.emplace_back("SMOLVM_CUDA_DAEMON", daemon);
  ToolResult result =
      Machine({"run", "--cuda", "--mem", "1024", "-I", "debian", "-v", Mount(), "-d", "-n", name});
  ASSERT_EQ(result.status, 0) << result.err;
  const std::vector<pid_t> daemons = HelpersNamed("smolvm-cuda-daemon");
  ASSERT_EQ(daemons.size(), 1u);
  kill(daemons[0], SIGKILL);
  EXPECT_TRUE(WaitForCudaState("failed"));
  EXPECT_THAT(Machine({"list"}).out, HasSubstr(" failed "));
  EXPECT_THAT(FileTail(state_ / "smolvm/machines" / name / "supervisor.log", 4096),
              HasSubstr("ended with status 3"));
  // The machine goes on; programs are told that there is no device.
  result = Machine({"exec", "-n", name, "--", "/probe/cuda-probe"});
  EXPECT_THAT(result.out, HasSubstr("cuInit -> 100"));
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(Machine({"delete", "--force", "-n", name}).status, 0);
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
