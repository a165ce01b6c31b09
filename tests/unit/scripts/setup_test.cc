// scripts/setup's two halves, apart from a real apt-get: which packages it asks for, and where the
// CUDA headers come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scripts/sandbox.h"

namespace smolvm::scripts {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kCudaHeader[] = "#define CUDA_VERSION 13000\n";

class SetupTest : public ::testing::Test {
 protected:
  SetupTest() {
    box_.Write("checkout/scripts/packages.txt", "# Build\ng++\ncmake  # builds\n\nllvm-19-dev\n");
    box_.Write("installed", "g++\ncmake\nllvm-19-dev:amd64\n");
    box_.AddTool("dpkg-query",
                 "sed 's/^/installed /' \"$SANDBOX/installed\"; echo 'config-files removed'");
    box_.AddTool("apt-get", R"(
printf '%s\n' "$*" >>"$SANDBOX/calls"
if [ "$1" = install ]; then
  for word; do case $word in -*|install) ;; *) echo "$word" >>"$SANDBOX/installed" ;; esac; done
fi)");
    AddToolkit("toolkit", kCudaHeader);
    // A toolkit of the machine that the test runs on must not be found.
    std::string text = box_.Read("checkout/scripts/setup");
    const std::string fixed = "/usr/local/cuda/include";
    for (std::size_t at; (at = text.find(fixed)) != std::string::npos;)
      text.replace(at, fixed.size(), "/nonexistent");
    box_.Write("checkout/scripts/setup", text);
  }

  void AddToolkit(const std::string& folder, const std::string& header) {
    box_.Write(folder + "/include/cuda.h", header);
    box_.Write(folder + "/include/cudaTypedefs.h", "");
    box_.Set("CUDA_HOME", (box_.dir() / folder).string());
  }
  // A pip that "downloads" a wheel with this cuda.h in it.
  void AddPip(const std::string& header) {
    box_.Write("wheel/nvidia/cu13/include/cuda.h", header);
    box_.Write("wheel/nvidia/cu13/include/cudaTypedefs.h", "");
    box_.AddTool("pip3", R"(
printf '%s\n' "$*" >>"$SANDBOX/calls"
while [ $# -gt 0 ]; do if [ "$1" = --dest ]; then dest=$2; fi; shift; done
cd "$SANDBOX/wheel" && python3 -m zipfile -c "$dest/nvidia_cuda_runtime-13.0.96-py3-none-any.whl" nvidia)");
  }
  Outcome Run(const std::string& arguments = "") { return box_.Run("setup", arguments); }
  std::string Cached(const std::string& name) {
    return box_.Read("home/.cache/smolvm-cuda/cuda-headers/" + name);
  }

  Sandbox box_;
};

TEST_F(SetupTest, DoesNothingWhereAllIsThere) {
  const Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(box_.Read("calls"), "");
  EXPECT_THAT(outcome.err, EndsWith("toolkit/include (13000)\n==> set-up: all there\n"));
}

TEST_F(SetupTest, InstallsWhatIsMissingAlone) {
  box_.Write("installed", "cmake\n");
  const Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(box_.Read("calls"), HasSubstr("update -q\n"));
  EXPECT_THAT(box_.Read("calls"),
              HasSubstr("install -y -q --no-install-recommends g++ llvm-19-dev\n"));
  box_.Write("calls", "");
  EXPECT_EQ(Run().status, 0);
  EXPECT_EQ(box_.Read("calls"), "");
}

TEST_F(SetupTest, NamesWhatIsMissing) {
  box_.Write("installed", "g++\nllvm-19-dev\n");
  Outcome outcome = Run("--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, EndsWith("error: missing packages: cmake\n"));
  EXPECT_EQ(box_.Read("calls"), "");
  box_.AddTool("apt-get", "exit 100");
  outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("apt-get could not install: cmake"));
  box_.AddTool("apt-get", "exit 0");
  outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("still missing after apt-get: cmake"));
}

TEST_F(SetupTest, BecomesRootThroughSudo) {
  box_.AddTool("id", "echo 1000");
  box_.Write("installed", "g++\nllvm-19-dev\n");
  Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("needs root and there is no sudo; as root, run: apt-get"));
  EXPECT_EQ(box_.Read("calls"), "");

  box_.AddTool("sudo", "echo \"sudo $*\" >>\"$SANDBOX/calls\"; exit 1");
  outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("sudo asks for a password; as root, run: "));

  box_.Write("calls", "");
  box_.AddTool("sudo", "[ \"$1 $2\" = '-n --' ] && shift 2 && exec \"$@\"");
  outcome = Run();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(box_.Read("calls"), HasSubstr("install -y -q --no-install-recommends cmake\n"));
}

TEST_F(SetupTest, SaysWhatToDoWithoutDebian) {
  box_.RemoveTool("apt-get");
  const Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("not a Debian system"));
}

TEST_F(SetupTest, UnpacksTheHeadersFromTheWheel) {
  box_.Set("CUDA_HOME", "");
  AddPip(kCudaHeader);
  Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(Cached("include/cuda.h"), kCudaHeader);
  EXPECT_THAT(box_.Read("calls"), HasSubstr("nvidia-cuda-runtime==13.0.*\n"));
  EXPECT_THAT(Cached("wheel.sha256"), HasSubstr("nvidia_cuda_runtime-13.0.96-py3-none-any.whl"));
  box_.Write("calls", "");
  outcome = Run();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(box_.Read("calls"), "");
}

TEST_F(SetupTest, PrefersTheWheelToAnOldToolkit) {
  AddToolkit("old", "#define CUDA_VERSION 12040\n");
  AddPip(kCudaHeader);
  const Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("headers of CUDA 12.4, which is older than 13.0"));
  EXPECT_EQ(Cached("include/cuda.h"), kCudaHeader);
}

TEST_F(SetupTest, SaysHowToGetTheHeaders) {
  box_.Set("CUDA_HOME", "");
  box_.AddTool("pip3", "echo 'no matching distribution' >&2; exit 1");
  Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no matching distribution"));
  EXPECT_THAT(outcome.err, HasSubstr("CUDA driver API headers"));
  EXPECT_THAT(outcome.err, HasSubstr("cuda-cudart-dev-13-0"));
  outcome = Run("--check");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("nothing is fetched with --check"));
}

TEST_F(SetupTest, LeavesNothingOfABadWheel) {
  box_.Set("CUDA_HOME", "");
  AddPip("#define CUDA_VERSION 12080\n");
  Outcome outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("are of version '12080'"));
  EXPECT_TRUE(std::filesystem::is_empty(box_.dir() / "home/.cache/smolvm-cuda"));
  box_.AddTool("pip3",
               "while [ $# -gt 0 ]; do if [ \"$1\" = --dest ]; then echo junk >\"$2/x.whl\"; fi; "
               "shift; done");
  outcome = Run();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot be unpacked"));
  EXPECT_TRUE(std::filesystem::is_empty(box_.dir() / "home/.cache/smolvm-cuda"));
}

TEST_F(SetupTest, RefusesUnknownArguments) {
  const Outcome outcome = Run("--bogus");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("unknown argument '--bogus'"));
  EXPECT_EQ(Run("--help").status, 0);
}

}  // namespace
}  // namespace smolvm::scripts
