// The whole way: a microVM with --cuda, the probe in it, the shim, vsock, daemon, worker, and the
// device that this host has. State goes to a folder of the test's own; the cache of kernels and
// images is the user's, so that they are fetched once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct Outcome {
  std::string out;
  std::string err;
  int status = -1;
};

class ProbeVmTest : public ::testing::Test {
 protected:
  ProbeVmTest() {
    std::string name = (fs::temp_directory_path() / "smolvm-probe-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) dir_ = name;
    fs::create_directories(dir_ / "probe");
    fs::copy_file(CUDA_PROBE, dir_ / "probe/cuda-probe");
  }
  ~ProbeVmTest() override {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }

  Outcome Shell(const std::string& command) {
    const std::string whole = "XDG_STATE_HOME=" + state().string() +
                              " PATH=" + fs::path(SMOLVM).parent_path().string() +
                              ":$PATH timeout 500 " + command + " >" + (dir_ / "out").string() +
                              " 2>" + (dir_ / "err").string() + " </dev/null";
    const int status = std::system(whole.c_str());
    return {Read("out"), Read("err"), WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  }
  std::string Read(const char* name) {
    std::ostringstream text;
    text << std::ifstream(dir_ / name).rdbuf();
    return text.str();
  }
  fs::path state() const { return dir_ / "state"; }

  // Nothing may be left: no machine, no process, no folder of one.
  void ExpectClean() {
    const Outcome outcome = Shell(SCRIPTS "/cleanup.sh --purge");
    EXPECT_THAT(outcome.out, HasSubstr("machines=clean\nvm_processes=none\n"));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    const fs::path machines = state() / "smolvm/machines";
    if (!fs::exists(machines)) return;
    for (const auto& entry : fs::directory_iterator(machines))
      EXPECT_FALSE(entry.is_directory()) << entry;
  }

  fs::path dir_;
};

// Every line of the probe, on whatever device there is. An emulation library that was built without
// its kernel compiler refuses the kernel (801).
std::string AllLines(const std::string& indent, const std::string& elements) {
  std::string regex;
  for (const std::string line :
       {"load_shim -> ok /opt/smolvm-cuda/libcuda.so.1", "cuInit -> 0",
        "cuDeviceGetCount -> 0 count = [1-9][0-9]*", "cuDeviceGetName -> 0 name = [^\n]+",
        "cuCtxCreate -> 0", "cuMemGetInfo -> 0 total MiB = [1-9][0-9]*", "cuMemAlloc   -> 0",
        "cuMemcpyHtoD -> 0", "cuMemcpyDtoH -> 0", "roundtrip first 16 bytes match: True",
        "cuMemFree    -> 0", "roundtrip all bytes match: True"}) {
    regex += indent + line + "\n";
  }
  const bool kernels_run = KERNELS_RUN;
  return "^" + regex + indent + "vector_add -> " + (kernels_run ? "0" : "801") +
         " elements = " + elements + " match: " + (kernels_run ? "True" : "False") + "\n";
}

TEST_F(ProbeVmTest, ProgramPrintsEveryLine) {
  const Outcome outcome =
      Shell(SMOLVM " machine run --cuda --mem 512 --image debian --volume " +
            (dir_ / "probe").string() + ":/probe:ro -- /probe/cuda-probe --elements 1048576");
  EXPECT_THAT(outcome.out, ContainsRegex(AllLines("", "1048576") + "$")) << outcome.err;
  EXPECT_EQ(outcome.status, KERNELS_RUN ? 0 : 1);
  ExpectClean();
}

TEST_F(ProbeVmTest, PythonFormPrintsEveryLine) {
  const Outcome outcome = Shell(SCRIPTS "/run-cuda-probe.sh --mem 1024 debian");
  EXPECT_THAT(outcome.out,
              ContainsRegex(AllLines("  ", "16777216") + "device_named=ok\ndata_roundtrip=ok\n" +
                            (KERNELS_RUN ? "kernel_result=ok\n" : "kernel_result=FAIL\n")))
      << outcome.err;
  const bool gpu = outcome.out.find("device_kind=gpu\nresult=cuda_ok\n") != std::string::npos;
  if (!gpu)
    EXPECT_THAT(outcome.out,
                HasSubstr("device_kind=cpu_emulation\nresult=cpu_emulation_not_gpu\n"));
  EXPECT_EQ(outcome.status, gpu ? 0 : 1);
  ExpectClean();
}

}  // namespace
