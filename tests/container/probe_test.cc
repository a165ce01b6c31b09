// The probe in a container that has no GPU, through the CDI spec, on the daemon's emulation device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "tests/container/sandbox.h"

namespace smolvm::gpu {
namespace {

using ::testing::HasSubstr;

const std::string kBuild = SMOLVM_BUILD_FOLDER;

// Runs the daemon for its lifetime.
class Daemon {
 public:
  explicit Daemon(const std::string& socket, const std::string& log) : child_(fork()) {
    if (child_ != 0) return;
    const std::string listen = "unix:" + socket;
    const std::string program = kBuild + "/bin/smolvm-cuda-daemon";
    if (std::freopen(log.c_str(), "w", stderr) == nullptr) _exit(126);
    execl(program.c_str(), program.c_str(), "--listen", listen.c_str(), "--backend", "emulation",
          static_cast<char*>(nullptr));
    _exit(127);
  }
  ~Daemon() {
    kill(child_, SIGTERM);
    for (int i = 0; i < 100; ++i) {
      if (waitpid(child_, nullptr, WNOHANG) == child_) return;
      usleep(50000);
    }
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  // Whether the socket appeared within 20 s.
  bool Listens(const std::string& socket) const {
    for (int i = 0; i < 400; ++i) {
      if (std::filesystem::is_socket(socket)) return true;
      if (waitpid(child_, nullptr, WNOHANG | WNOWAIT) == child_) return false;
      usleep(50000);
    }
    return false;
  }

 private:
  pid_t child_;
};

// An image that holds the probe and the libraries that it, but not CUDA, needs.
Captured MakeProbeImage(const Sandbox& sandbox) {
  const std::string tree = sandbox.folder() + "/probe-tree";
  const Captured copied =
      Shell("set -e; mkdir -p " + tree + "/bin; for d in dev proc sys tmp etc run opt; do mkdir " +
            tree + "/$d; done; cp " + kBuild + "/bin/cuda-probe " + tree + "/bin/; ldd " + kBuild +
            "/bin/cuda-probe " + kBuild +
            "/lib/libcuda.so.1 | grep -o ' /[^ ]*\\|^[[:space:]]/[^ ]*' | "
            "sort -u | while read -r lib; do case $lib in *libcuda*) ;; *) mkdir -p " +
            tree + "$(dirname $lib); cp -L $lib " + tree + "$lib;; esac; done");
  if (copied.status != 0) return copied;
  return sandbox.Import(tree, "probe:1");
}

void ExpectProbed(const Captured& run, const std::string& daemon_log) {
  SCOPED_TRACE(run.out + run.err + daemon_log);
  EXPECT_THAT(run.out, HasSubstr("load_shim -> ok /opt/smolvm-cuda/libcuda.so.1"));
  EXPECT_THAT(run.out, HasSubstr("name = smolvm CPU emulation device"));
  EXPECT_THAT(run.out, HasSubstr("roundtrip all bytes match: True"));
  // A build without the kernel compiler refuses the launch: CUDA_ERROR_NOT_SUPPORTED, 801.
  const bool kernels_run = KERNELS_RUN;
  EXPECT_THAT(run.out, HasSubstr(kernels_run ? "vector_add -> 0 elements = 16777216 match: True"
                                             : "vector_add -> 801 "));
  EXPECT_EQ(run.status, kernels_run ? 0 : 1);
}

TEST(ContainerProbe, RunsOnTheEmulationDeviceThroughTheCdiSpec) {
  for (const char* file : {"/bin/smolvm-cuda-daemon", "/bin/cuda-probe", "/lib/libcuda.so.1"}) {
    if (!std::filesystem::exists(kBuild + file)) {
      GTEST_SKIP() << kBuild << file << " has not been built";
    }
  }
  std::string why;
  Sandbox* sandbox = Sandbox::Get(why);
  if (sandbox == nullptr) GTEST_SKIP() << "no containers here: " << why;
  const std::string socket = sandbox->folder() + "/daemon.sock";
  const std::string log = sandbox->folder() + "/daemon.log";
  const Daemon daemon(socket, log);
  ASSERT_TRUE(daemon.Listens(socket)) << Shell("cat " + log).out;
  const Captured image = MakeProbeImage(*sandbox);
  ASSERT_EQ(image.status, 0) << image.err;

  const Captured spec = Shell(SMOLVM_PROGRAM " gpu cdi-spec --library " + kBuild +
                              "/lib --socket " + socket + " -o /etc/cdi/smolvm-cuda.json");
  ASSERT_EQ(spec.status, 0) << spec.err;
  const Captured run = Shell(sandbox->podman() + " run --device smolvm.dev/cuda=all " +
                             Sandbox::RunOptions() + " probe:1 /bin/cuda-probe");
  ExpectProbed(run, Shell("cat " + log).out);

  // The same by arguments instead of the spec.
  const Captured args = Shell(
      sandbox->podman() + " run $(" SMOLVM_PROGRAM " gpu run-args --remote --library " + kBuild +
      "/lib --socket " + socket + ") " + Sandbox::RunOptions() + " probe:1 /bin/cuda-probe");
  ExpectProbed(args, Shell("cat " + log).out);
}

}  // namespace
}  // namespace smolvm::gpu
