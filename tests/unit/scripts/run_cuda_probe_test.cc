#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scripts/sandbox.h"

namespace smolvm::scripts {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string ProbeOutput(const std::string& device, bool all_bytes = true, int launch = 0) {
  return "load_shim -> ok /opt/smolvm-cuda/libcuda.so.1\n"
         "cuInit -> 0\n"
         "cuDeviceGetCount -> 0 count = 1\n"
         "cuDeviceGetName -> 0 name = " +
         device +
         "\n"
         "cuCtxCreate -> 0\n"
         "cuMemGetInfo -> 0 total MiB = 22587\n"
         "cuMemAlloc   -> 0\n"
         "cuMemcpyHtoD -> 0\n"
         "cuMemcpyDtoH -> 0\n"
         "roundtrip first 16 bytes match: True\n"
         "cuMemFree    -> 0\n"
         "roundtrip all bytes match: " +
         (all_bytes ? "True" : "False") + "\nvector_add -> " + std::to_string(launch) +
         " elements = 16777216 match: " + (launch == 0 ? "True" : "False") + "\n";
}

std::string Indented(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    out += "  " + text.substr(at, end - at);
    at = end;
  }
  return out;
}

class RunCudaProbeTest : public ::testing::Test {
 protected:
  RunCudaProbeTest() { box_.AddLauncher("1.2.3"); }

  Outcome RunWith(const std::string& output, int status, const std::string& arguments = "") {
    box_.Write("run_output", output);
    box_.Write("run_status", std::to_string(status));
    return box_.Run("run-cuda-probe.sh", arguments);
  }

  Sandbox box_;
};

TEST_F(RunCudaProbeTest, PassesOnAGpu) {
  const std::string output = ProbeOutput("NVIDIA A10");
  const Outcome outcome = RunWith(output, 0);
  EXPECT_EQ(outcome.out, Indented(output) +
                             "device_named=ok\n"
                             "data_roundtrip=ok\n"
                             "kernel_result=ok\n"
                             "device_kind=gpu\n"
                             "result=cuda_ok\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(RunCudaProbeTest, StartsTheMachineAndRecordsIt) {
  RunWith(ProbeOutput("NVIDIA A10"), 0);
  const std::string mount = (box_.dir() / "checkout/scripts").string() + ":/probe:ro";
  EXPECT_THAT(
      box_.Read("calls"),
      MatchesRegex("machine run --cuda --mem 8192 --name smolskill-cuda-probe-[0-9-]+ --volume " +
                   mount + " -- python3 /probe/cuda-probe.py\n"));
  EXPECT_THAT(box_.Read("state/smolvm-skills/gpu-cuda.machines"),
              MatchesRegex("smolskill-cuda-probe-[0-9-]+\n"));
}

TEST_F(RunCudaProbeTest, PassesItsArgumentsOn) {
  RunWith(ProbeOutput("NVIDIA A10"), 0, "--mem 1024 --elements 4096 python:3.12-bookworm");
  EXPECT_THAT(box_.Read("calls"), HasSubstr("--mem 1024 "));
  EXPECT_THAT(
      box_.Read("calls"),
      EndsWith("--image python:3.12-bookworm -- python3 /probe/cuda-probe.py --elements 4096\n"));
}

TEST_F(RunCudaProbeTest, ZeroIsNotTheDefault) {
  for (const char* arguments : {"--mem 0", "--mem 000", "--elements 0"}) {
    const Outcome outcome = RunWith(ProbeOutput("NVIDIA A10"), 0, arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.err, HasSubstr("takes a number above 0")) << arguments;
    EXPECT_EQ(box_.Read("calls"), "");
  }
}

TEST_F(RunCudaProbeTest, TellsTheEmulationDeviceFromAGpu) {
  const Outcome outcome = RunWith(ProbeOutput("smolvm CPU emulation device"), 0);
  EXPECT_THAT(outcome.out, EndsWith("device_named=ok\n"
                                    "data_roundtrip=ok\n"
                                    "kernel_result=ok\n"
                                    "device_kind=cpu_emulation\n"
                                    "result=cpu_emulation_not_gpu\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, ReportsAKernelThatDidNotRun) {
  Outcome outcome = RunWith(ProbeOutput("smolvm CPU emulation device", true, 801), 1);
  EXPECT_THAT(outcome.out, HasSubstr("  vector_add -> 801 elements = 16777216 match: False\n"));
  EXPECT_THAT(outcome.out,
              EndsWith("data_roundtrip=ok\nkernel_result=FAIL\ndevice_kind=cpu_emulation\n"
                       "result=cpu_emulation_not_gpu\n"));
  EXPECT_EQ(outcome.status, 1);
  outcome = RunWith(ProbeOutput("NVIDIA A10", true, 801), 1);
  EXPECT_THAT(outcome.out, EndsWith("kernel_result=FAIL\ndevice_kind=gpu\nresult=FAILED\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, ReportsBytesThatChanged) {
  const Outcome outcome = RunWith(ProbeOutput("NVIDIA A10", false), 1);
  EXPECT_THAT(outcome.out,
              EndsWith("device_named=ok\ndata_roundtrip=FAIL\nkernel_result=ok\ndevice_kind=gpu\n"
                       "result=FAILED\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, ReportsAShimThatDoesNotLoad) {
  const std::string output =
      "load_shim -> FAILED /opt/smolvm-cuda/libcuda.so.1: cannot open shared object file\nhint: "
      "use a glibc image\n";
  const Outcome outcome = RunWith(output, 1, "alpine");
  EXPECT_EQ(outcome.out, Indented(output) +
                             "device_named=FAIL\n"
                             "data_roundtrip=FAIL\n"
                             "kernel_result=FAIL\n"
                             "device_kind=none\n"
                             "result=FAILED\n");
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, ReportsThatNoDeviceWasReached) {
  const Outcome outcome =
      RunWith("load_shim -> ok /opt/smolvm-cuda/libcuda.so.1\ncuInit -> 100\n", 1);
  EXPECT_THAT(outcome.out, EndsWith("device_kind=none\nresult=FAILED\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, DoesNotPassWhenTheMachineFailedInTheEnd) {
  const Outcome outcome = RunWith(ProbeOutput("NVIDIA A10"), 125);
  EXPECT_THAT(outcome.out, EndsWith("kernel_result=ok\ndevice_kind=gpu\nresult=FAILED\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, ReportsAMachineThatDidNotStart) {
  const Outcome outcome = RunWith("", 125);
  EXPECT_EQ(outcome.out,
            "device_named=FAIL\ndata_roundtrip=FAIL\nkernel_result=FAIL\ndevice_kind=none\nresult="
            "FAILED\n");
  EXPECT_THAT(outcome.err, HasSubstr("the launcher's status was 125"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(RunCudaProbeTest, SaysThatTheLauncherIsMissing) {
  box_.RemoveTool("smolvm");
  const Outcome outcome = box_.Run("run-cuda-probe.sh");
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("the launcher is missing"));
  EXPECT_EQ(outcome.status, 2);
}

TEST_F(RunCudaProbeTest, RefusesAWrongCommandLine) {
  for (const char* arguments : {"--bogus", "--mem x", "--mem", "--elements -1", "one two"}) {
    const Outcome outcome = box_.Run("run-cuda-probe.sh", arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, Not(HasSubstr("unbound")));
  }
  EXPECT_EQ(box_.Read("calls"), "");
  EXPECT_EQ(box_.Run("run-cuda-probe.sh", "--help").status, 0);
}

}  // namespace
}  // namespace smolvm::scripts
