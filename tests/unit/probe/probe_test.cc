// The probe in both its forms, and the preflight's host check, on a driver that fails on request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

struct Outcome {
  std::string out;
  int status = -1;
};

// Runs a shell command; `out` is its stdout.
Outcome Shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.out.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

std::string Failing(const std::string& words) { return "FAKE_DRIVER_FAIL='" + words + "' "; }

constexpr char kGood[] = "load_shim -> ok " FAKE_DRIVER
                         "\n"
                         "cuInit -> 0\n"
                         "cuDeviceGetCount -> 0 count = 1\n"
                         "cuDeviceGetName -> 0 name = NVIDIA Fake\n"
                         "cuCtxCreate -> 0\n"
                         "cuMemGetInfo -> 0 total MiB = 22587\n"
                         "cuMemAlloc   -> 0\n"
                         "cuMemcpyHtoD -> 0\n"
                         "cuMemcpyDtoH -> 0\n"
                         "roundtrip first 16 bytes match: True\n"
                         "cuMemFree    -> 0\n"
                         "roundtrip all bytes match: True\n"
                         "vector_add -> 0 elements = 16777216 match: True\n";

// The parameter is the command that starts the probe: the program or the Python form, which must
// agree in all they print.
class ProbeTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (SANITIZED && GetParam() != std::string(CUDA_PROBE)) {
      GTEST_SKIP() << "Python cannot load a library that was built with a sanitizer";
    }
    if (*GetParam() == ' ') GTEST_SKIP() << "there is no Python here";
  }
  Outcome Probe(const std::string& arguments, const std::string& environment = "") {
    return Shell(environment + GetParam() + " --library " FAKE_DRIVER " " + arguments);
  }
};

TEST_P(ProbeTest, PrintsEveryLineOfAWorkingDevice) {
  const Outcome outcome = Probe("");
  EXPECT_EQ(outcome.out, kGood);
  EXPECT_EQ(outcome.status, 0);
}

TEST_P(ProbeTest, TakesTheLibraryFromTheEnvironment) {
  const Outcome outcome =
      Shell(std::string("SMOLVM_CUDA_SHIM=" FAKE_DRIVER " ") + GetParam() + " --elements 1 2>&1");
  EXPECT_THAT(outcome.out, StartsWith("load_shim -> ok " FAKE_DRIVER "\n"));
  EXPECT_EQ(outcome.status, 0);
}

TEST_P(ProbeTest, AddsAnyNumberOfElements) {
  for (const char* count : {"1", "255", "257", "65536", "65537", "1048577"}) {
    const Outcome outcome = Probe(std::string("--elements ") + count);
    EXPECT_THAT(outcome.out,
                HasSubstr(std::string("vector_add -> 0 elements = ") + count + " match: True\n"));
    EXPECT_EQ(outcome.status, 0);
  }
}

TEST_P(ProbeTest, RefusesAnImpossibleNumberOfElements) {
  for (const char* count : {"0", "-1", "x", "1073741825", "''"}) {
    EXPECT_EQ(Probe(std::string("--elements ") + count + " 2>/dev/null").status, 2) << count;
  }
  EXPECT_EQ(Probe("--bogus 2>/dev/null").status, 2);
}

TEST_P(ProbeTest, SaysWhyTheLibraryDoesNotLoad) {
  const Outcome outcome = Shell(std::string(GetParam()) + " --library /nonexistent/libcuda.so.1");
  EXPECT_THAT(
      outcome.out,
      StartsWith("load_shim -> FAILED /nonexistent/libcuda.so.1: cannot open shared object"));
  EXPECT_THAT(outcome.out,
              HasSubstr("\nhint: /nonexistent/libcuda.so.1 is not the shim's usual place"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_P(ProbeTest, HintsFitTheLibrary) {
  // A file that is there but no library says nothing about images or architectures.
  EXPECT_THAT(Shell(std::string(GetParam()) + " --library /etc/passwd").out,
              HasSubstr("\nhint: /etc/passwd is not the shim's usual place"));
  if (access("/opt/smolvm-cuda/libcuda.so.1", F_OK) != 0) {
    EXPECT_THAT(Shell("env -u SMOLVM_CUDA_SHIM " + std::string(GetParam())).out,
                HasSubstr("is there only in a machine started with --cuda"));
  }
  const Outcome outcome = Shell(std::string(GetParam()) + " --library '' 2>&1");
  EXPECT_THAT(outcome.out, HasSubstr("--library takes a path, not ''\n"));
  EXPECT_EQ(outcome.status, 2);
}

TEST_P(ProbeTest, StopsWhereThereIsNoDevice) {
  const std::string loaded = "load_shim -> ok " FAKE_DRIVER "\n";
  Outcome outcome = Probe("", Failing("cuInit=100"));
  EXPECT_EQ(outcome.out, loaded + "cuInit -> 100\n");
  EXPECT_EQ(outcome.status, 1);
  outcome = Probe("", "FAKE_DRIVER_DEVICES=0 ");
  EXPECT_EQ(outcome.out, loaded + "cuInit -> 0\ncuDeviceGetCount -> 0 count = 0\n");
  EXPECT_EQ(outcome.status, 1);
}

TEST_P(ProbeTest, SeesBytesThatChanged) {
  const Outcome outcome = Probe("--elements 4096", Failing("corrupt"));
  EXPECT_THAT(outcome.out, HasSubstr("roundtrip first 16 bytes match: True\n"));
  EXPECT_THAT(outcome.out, HasSubstr("roundtrip all bytes match: False\n"));
  EXPECT_THAT(outcome.out, HasSubstr("vector_add -> 0 elements = 4096 match: False\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_P(ProbeTest, PrintsTheErrorCodeItGot) {
  for (const char* call :
       {"cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", "cuCtxSynchronize"}) {
    const Outcome outcome = Probe("--elements 4096 2>&1", Failing(std::string(call) + "=801"));
    EXPECT_THAT(outcome.out, HasSubstr("vector_add -> 801 elements = 4096 match: False\n")) << call;
    EXPECT_THAT(outcome.out, HasSubstr(std::string("vector_add: ") + call + " failed\n"));
    EXPECT_EQ(outcome.status, 1);
  }
  const Outcome outcome = Probe("--elements 1", Failing("cuMemcpyHtoD=719"));
  EXPECT_THAT(outcome.out, HasSubstr("cuMemcpyHtoD -> 719\n"));
  EXPECT_THAT(outcome.out, HasSubstr("roundtrip first 16 bytes match: False\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_P(ProbeTest, FailsWhenAnySingleCallFails) {
  for (const char* call : {"cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuCtxCreate",
                           "cuMemGetInfo", "cuMemAlloc", "cuMemcpyDtoH", "cuMemFree"}) {
    EXPECT_EQ(Probe("--elements 16 2>/dev/null", Failing(std::string(call) + "=2")).status, 1)
        << call;
  }
}

INSTANTIATE_TEST_SUITE_P(Program, ProbeTest, ::testing::Values(CUDA_PROBE));
INSTANTIATE_TEST_SUITE_P(Python, ProbeTest, ::testing::Values(PYTHON " " CUDA_PROBE_PY));

Outcome Preflight(const std::string& arguments, const std::string& environment = "") {
  return Shell(environment + CUDA_PREFLIGHT + " --library " FAKE_DRIVER " --root /nonexistent " +
               arguments);
}

TEST(CudaPreflightTest, ListsTheHostsGpus) {
  const Outcome made = Shell(
      "root=$(mktemp -d /tmp/smolvm-preflight-XXXXXX) && cd $root && "
      "mkdir -p dev/dri proc/driver/nvidia/gpus/0000:01:00.0 sys/class/drm/renderD128 "
      "sys/devices/0000:03:00.0 && touch dev/nvidiactl dev/nvidia0 dev/dri/renderD128 && "
      "echo 'Device Minor: 0' >proc/driver/nvidia/gpus/0000:01:00.0/information && "
      "echo 0x8086 >sys/devices/0000:03:00.0/vendor && "
      "ln -s ../../../devices/0000:03:00.0 sys/class/drm/renderD128/device && printf %s $root");
  ASSERT_EQ(made.status, 0);
  const Outcome outcome =
      Shell(Failing("cuInit=999") + CUDA_PREFLIGHT " --library " FAKE_DRIVER " --root " + made.out);
  EXPECT_THAT(outcome.out, HasSubstr("libcuda=failed\nerror=cuInit returned 999\n"
                                     "host_gpu=nvidia raw 0000:01:00.0\n"
                                     "host_gpu=intel raw 0000:03:00.0\n"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(Shell("rm -r " + made.out).status, 0);
}

TEST(CudaPreflightTest, ListsEveryGpu) {
  // What this shell's programs may see does not matter.
  const Outcome outcome = Preflight("", "FAKE_DRIVER_DEVICES=3 CUDA_VISIBLE_DEVICES= ");
  EXPECT_THAT(outcome.out, StartsWith("cuda_version=13.0\n"));
  EXPECT_THAT(outcome.out,
              HasSubstr("gpu=NVIDIA Fake\ngpu=NVIDIA Fake 1\ngpu=NVIDIA Fake 2\nlibcuda=ok\n"));
  EXPECT_EQ(outcome.status, 0);
}

TEST(CudaPreflightTest, TellsNoDriverFromNoDevice) {
  Outcome outcome = Shell(CUDA_PREFLIGHT " --library /nonexistent/libcuda.so.1");
  EXPECT_THAT(outcome.out,
              StartsWith("libcuda=absent\nerror=/nonexistent/libcuda.so.1: cannot open"));
  EXPECT_EQ(outcome.status, 1);
  outcome = Preflight("", Failing("cuInit=100"));
  EXPECT_EQ(outcome.out, "libcuda=no_device\nerror=cuInit returned 100\n");
  EXPECT_EQ(outcome.status, 1);
  outcome = Preflight("", Failing("cuInit=999"));
  EXPECT_EQ(outcome.out, "libcuda=failed\nerror=cuInit returned 999\n");
  EXPECT_EQ(outcome.status, 1);
}

TEST(CudaPreflightTest, OutlivesABrokenDriver) {
  Outcome outcome = Preflight("--timeout 1", Failing("hang"));
  EXPECT_EQ(outcome.out, "libcuda=timeout\nerror=the driver did not answer within 1 s\n");
  EXPECT_EQ(outcome.status, 1);
  outcome = Preflight("2>/dev/null", Failing("crash"));
  EXPECT_THAT(outcome.out, StartsWith("libcuda=crashed\nerror=the driver crashed with signal 6 "));
  EXPECT_EQ(outcome.status, 1);
  outcome = Preflight("", Failing("exit"));
  EXPECT_EQ(outcome.out, "libcuda=crashed\nerror=the driver ended the process with status 7\n");
  EXPECT_EQ(outcome.status, 1);
}

TEST(CudaPreflightTest, IsNotConfusedByWhatTheDriverPrints) {
  const Outcome outcome = Preflight("2>/dev/null", Failing("noise"));
  EXPECT_EQ(outcome.out.find("not one"), std::string::npos);
  EXPECT_EQ(outcome.status, 0);
}

TEST(CudaPreflightTest, RefusesAWrongCommandLine) {
  EXPECT_EQ(Preflight("--timeout 0 2>/dev/null").status, 2);
  EXPECT_EQ(Preflight("--bogus 2>/dev/null").status, 2);
  EXPECT_EQ(Preflight("--timeout 2>/dev/null").status, 2);
}

}  // namespace
