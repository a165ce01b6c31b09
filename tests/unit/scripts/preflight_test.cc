#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scripts/sandbox.h"

namespace smolvm::scripts {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A Linux host with one GPU and everything it needs; each test takes something away.
class PreflightTest : public ::testing::Test {
 protected:
  PreflightTest() {
    box_.AddLauncher("1.2.3");
    SetPlatform("Linux", "x86_64");
    SetCachedDrivers(1);
    SetDriver("cuda_version=13.0\ndriver=580.105.08\ngpu=NVIDIA A10\nlibcuda=ok\n");
    box_.Write("host/dev/kvm", "");
    SetKvm("true", "KVM booted this kernel with -cpu host");
  }

  // What `smolvm machine accelerator --json` says.
  void SetKvm(const std::string& works, const std::string& reason) {
    box_.Write("accelerator", "{\n  \"accelerator\": \"x\",\n  \"kvm_works\": " + works +
                                  ",\n  \"reason\": \"" + reason + "\",\n  \"tried\": 1\n}\n");
  }

  void SetPlatform(const std::string& os, const std::string& machine) {
    box_.AddTool("uname", "case $1 in -s) echo " + os + " ;; -m) echo " + machine + " ;; esac");
  }
  void SetCachedDrivers(int count) {
    std::string cache =
        "2 libs found in cache `/etc/ld.so.cache'\n\tlibc.so.6 (libc6,x86-64) => /lib/libc.so.6\n";
    for (int i = 0; i < count; ++i)
      cache += "\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/libcuda.so.1\n";
    cache += "\tlibcudart.so.13 (libc6,x86-64) => /usr/lib/libcudart.so.13\n";
    box_.Write("cache", cache);
    box_.AddTool("ldconfig", "cat \"$SANDBOX/cache\"");
  }
  void SetDriver(const std::string& answer) {
    box_.Write("driver", answer);
    box_.AddTool("cuda-preflight",
                 "cat \"$SANDBOX/driver\"; grep -q '^libcuda=ok' \"$SANDBOX/driver\"");
  }
  void SetNvidiaSmi(const std::string& answer) {
    box_.Write("smi", answer);
    box_.AddTool("nvidia-smi", "cat \"$SANDBOX/smi\"");
  }
  Outcome Run(const std::string& arguments = "") { return box_.Run("preflight.sh", arguments); }
  // A file that no one can open for writing, root included: a folder.
  void DenyKvm() {
    std::filesystem::remove(box_.dir() / "host/dev/kvm");
    std::filesystem::create_directory(box_.dir() / "host/dev/kvm");
  }

  Sandbox box_;
};

TEST_F(PreflightTest, PrintsAReadyHost) {
  const Outcome outcome = Run();
  EXPECT_EQ(outcome.out,
            "smolvm_installed=yes\n"
            "smolvm_version=1.2.3\n"
            "verified_version=1.2.3\n"
            "version_status=match\n"
            "platform=linux-x86_64\n"
            "accel=kvm\n"
            "accel_access=ok\n"
            "note=KVM was seen to work: it has booted the machines' kernel on this host.\n"
            "gpu_present=yes\n"
            "gpu=NVIDIA A10, 580.105.08\n"
            "host_libcuda=1\n"
            "guest_needs_glibc_image=yes\n"
            "guest_shim_path=/opt/smolvm-cuda/libcuda.so.1\n"
            "result=ready\n");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(PreflightTest, StartsNothing) {
  Run();
  EXPECT_EQ(box_.Read("calls"), "--version\nmachine accelerator --json\n");  // without --retry
}

TEST_F(PreflightTest, ShowsEveryGpu) {
  SetDriver("driver=580.1\ngpu=NVIDIA A10\ngpu=NVIDIA H200\nlibcuda=ok\n");
  EXPECT_THAT(Run().out,
              HasSubstr("gpu=NVIDIA A10, 580.1\ngpu=NVIDIA H200, 580.1\nhost_libcuda=1\n"));
}

TEST_F(PreflightTest, NeedsNoNvidiaSmi) {
  box_.RemoveTool("nvidia-smi");
  EXPECT_EQ(Run().status, 0);
}

TEST_F(PreflightTest, FallsBackToNvidiaSmi) {
  box_.RemoveTool("cuda-preflight");
  SetNvidiaSmi("NVIDIA A10, 580.105.08\nNVIDIA L4, 580.105.08\n");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out, HasSubstr("gpu_present=yes\n"
                                     "gpu=NVIDIA A10, 580.105.08\n"
                                     "gpu=NVIDIA L4, 580.105.08\n"
                                     "note=the driver was not asked itself"));
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(PreflightTest, BlocksWhereNeitherFindsAGpu) {
  box_.RemoveTool("cuda-preflight");
  Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              HasSubstr("gpu_present=no\nnote=no GPU was found: nvidia-smi is absent"));
  EXPECT_THAT(outcome.out, EndsWith("result=blocked\n"));
  EXPECT_EQ(outcome.status, 1);
  box_.AddTool("nvidia-smi", "echo 'No devices were found'; exit 6");
  outcome = Run();
  EXPECT_THAT(outcome.out, HasSubstr("gpu_present=no\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, TellsOfGpusThatCudaCannotUse) {
  SetDriver(
      "libcuda=absent\nerror=not there\nhost_gpu=nvidia raw 0000:01:00.0\n"
      "host_gpu=amd cdi\nhost_gpu=intel raw 0000:00:02.0 0000:03:00.0\n");
  Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              HasSubstr("note=the host shows NVIDIA GPUs all the same (0000:01:00.0): "));
  EXPECT_THAT(outcome.out, HasSubstr("note=the host has GPUs of amd (by cdi), which CUDA does"));
  EXPECT_THAT(outcome.out,
              HasSubstr("note=the host has GPUs of intel (0000:00:02.0 0000:03:00.0)"));
  EXPECT_EQ(outcome.status, 1);
  // They are no news where CUDA has its GPU.
  SetDriver("gpu=NVIDIA A10\nlibcuda=ok\nhost_gpu=nvidia raw 0000:01:00.0\nhost_gpu=amd cdi\n");
  outcome = Run();
  EXPECT_THAT(outcome.out, Not(HasSubstr("the host ")));
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(PreflightTest, BlocksOnABrokenDriver) {
  SetDriver("libcuda=timeout\nerror=the driver did not answer within 20 s\n");
  Outcome outcome = Run();
  EXPECT_THAT(
      outcome.out,
      HasSubstr("gpu_present=no\nnote=the NVIDIA driver library could not be used: the driver "
                "did not answer within 20 s.\n"));
  EXPECT_EQ(outcome.status, 1);
  SetNvidiaSmi("NVIDIA A10, 580.105.08\n");
  outcome = Run();
  EXPECT_THAT(
      outcome.out,
      HasSubstr("gpu_present=yes\ngpu=NVIDIA A10, 580.105.08\nnote=nvidia-smi lists a GPU but"));
  EXPECT_THAT(outcome.out, EndsWith("result=blocked\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, ListsNoGpuOfADriverThatFailedHalfway) {
  SetDriver(
      "driver=580.1\ngpu=NVIDIA A10\nlibcuda=crashed\nerror=the driver crashed with signal 11\n");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out, HasSubstr("gpu_present=no\n"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\ngpu=")));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, SaysThereIsNoDevice) {
  SetDriver("libcuda=no_device\nerror=cuInit returned 100\n");
  EXPECT_THAT(
      Run().out,
      HasSubstr("note=the NVIDIA driver library is here but finds no GPU: cuInit returned 100.\n"));
}

TEST_F(PreflightTest, DoesNotTakeTheEmulationDeviceForAGpu) {
  SetDriver("cuda_version=13.0\ngpu=smolvm CPU emulation device\nlibcuda=ok\n");
  const Outcome outcome = Run();
  EXPECT_THAT(
      outcome.out,
      HasSubstr("gpu_present=no\nnote=the libcuda.so.1 that the loader finds is smolvm's CPU"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, BlocksWithoutLibcudaInTheLoaderCache) {
  SetCachedDrivers(0);
  SetDriver("libcuda=absent\nerror=libcuda.so.1: cannot open shared object file\n");
  Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              HasSubstr("host_libcuda=0\nnote=libcuda.so.1 is not in this host's loader cache"));
  EXPECT_THAT(outcome.out, EndsWith("result=blocked\n"));
  EXPECT_EQ(outcome.status, 1);
  SetCachedDrivers(2);
  EXPECT_THAT(Run().out, HasSubstr("host_libcuda=2\n"));
}

TEST_F(PreflightTest, DoesNotBlockWhereTheLoaderCacheIsUnknown) {
  box_.AddTool("ldconfig", "exit 1");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out, HasSubstr("host_libcuda=unknown\n"));
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(PreflightTest, ComparesVersions) {
  const std::pair<const char*, const char*> cases[] = {
      {"1.2.3", "match"}, {"1.2.4", "newer"},  {"1.10.0", "newer"}, {"2.0.0", "newer"},
      {"1.2.2", "older"}, {"0.99.9", "older"}, {"1.2", "older"},    {"1.2.3.1", "newer"}};
  for (const auto& [version, status] : cases) {
    box_.AddLauncher(version);
    EXPECT_THAT(Run().out,
                StartsWith(std::string("smolvm_installed=yes\nsmolvm_version=") + version +
                           "\nverified_version=1.2.3\nversion_status=" + status + "\n"));
  }
  box_.AddTool("smolvm", "exit 1");
  EXPECT_THAT(
      Run().out,
      HasSubstr("smolvm_version=unknown\nverified_version=1.2.3\nversion_status=unknown\n"));
}

TEST_F(PreflightTest, BlocksWithoutTheLauncher) {
  box_.RemoveTool("smolvm");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              StartsWith("smolvm_installed=no\nnote=smolvm is neither on PATH nor built"));
  EXPECT_THAT(
      outcome.out,
      HasSubstr("smolvm_version=unknown\nverified_version=1.2.3\nversion_status=unknown\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, FindsTheLauncherOfTheCheckout) {
  box_.AddLauncher("1.2.3");
  std::filesystem::create_directories(box_.dir() / "checkout/build/release/bin");
  std::filesystem::rename(box_.dir() / "bin/smolvm",
                          box_.dir() / "checkout/build/release/bin/smolvm");
  EXPECT_THAT(Run().out, StartsWith("smolvm_installed=yes\nsmolvm_version=1.2.3\n"));
}

TEST_F(PreflightTest, EmulatesWithoutKvm) {
  std::filesystem::remove(box_.dir() / "host/dev/kvm");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out, HasSubstr("accel=tcg\naccel_access=ok\nnote=/dev/kvm is absent"));
  EXPECT_THAT(outcome.out, HasSubstr("emulated in software and slow"));
  EXPECT_EQ(outcome.status, 0);
}

TEST_F(PreflightTest, BlocksOnAClosedKvm) {
  DenyKvm();
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              HasSubstr("accel=kvm\naccel_access=denied\nnote=/dev/kvm is there but closed"));
  EXPECT_THAT(outcome.out, HasSubstr("usermod -aG kvm"));
  EXPECT_THAT(outcome.out, HasSubstr("sg kvm -c"));
  EXPECT_THAT(outcome.out, EndsWith("result=blocked\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, ReadsArm64AsAarch64) {
  SetPlatform("Linux", "arm64");
  EXPECT_THAT(Run().out, HasSubstr("platform=linux-aarch64\n"));
}

TEST_F(PreflightTest, SaysThatMacosHasNoCuda) {
  SetPlatform("Darwin", "arm64");
  box_.RemoveTool("ldconfig");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              HasSubstr("platform=darwin-aarch64\n"
                        "accel=hvf\n"
                        "accel_access=ok\n"
                        "gpu_present=no\n"
                        "unsupported=cuda\n"
                        "note=macOS has no CUDA driver, so --cuda has nothing to reach here.\n"
                        "host_libcuda=unknown\n"));
  EXPECT_THAT(outcome.out, EndsWith("result=blocked\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, DoesNotServeWindows) {
  SetPlatform("MINGW64_NT-10.0", "x86_64");
  const Outcome outcome = Run();
  EXPECT_THAT(outcome.out,
              HasSubstr("accel=unknown\naccel_access=unknown\ngpu_present=no\nunsupported=cuda\n"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, SaysWhetherKvmWasSeenToWork) {
  SetKvm("false", "KVM does not run it: \\\"cmpxchg16b\\\"");
  Outcome outcome = Run();
  EXPECT_THAT(outcome.out, HasSubstr("accel=kvm\naccel_access=ok\nnote=KVM was seen to fail, so "
                                     "machines are emulated in software and slow: KVM does not "
                                     "run it: \"cmpxchg16b\"; 'smolvm machine accelerator "
                                     "--retry' tries again.\n"));
  EXPECT_EQ(outcome.status, 0);  // emulated is slow, not blocked
  EXPECT_THAT(Run("--json").out, HasSubstr("\"kvm_seen_to_work\": \"no\",\n"));
  SetKvm("null", "");
  EXPECT_THAT(Run().out, HasSubstr("accel_access=ok\nnote=whether KVM works here is not known"));
  EXPECT_THAT(Run("--json").out, HasSubstr("\"kvm_seen_to_work\": \"untried\",\n"));
  EXPECT_THAT(box_.Read("calls"), Not(HasSubstr("--retry")));  // it starts nothing
}

TEST_F(PreflightTest, PrintsJson) {
  SetDriver("driver=580.1\ngpu=NVIDIA \"A10\"\ngpu=NVIDIA\\H200\nlibcuda=ok\n");
  Outcome outcome = Run("--json");
  EXPECT_EQ(outcome.out,
            "{\n"
            "  \"smolvm_installed\": \"yes\",\n"
            "  \"smolvm_version\": \"1.2.3\",\n"
            "  \"verified_version\": \"1.2.3\",\n"
            "  \"version_status\": \"match\",\n"
            "  \"platform\": \"linux-x86_64\",\n"
            "  \"accel\": \"kvm\",\n"
            "  \"accel_access\": \"ok\",\n"
            "  \"gpu_present\": \"yes\",\n"
            "  \"host_libcuda\": 1,\n"
            "  \"guest_needs_glibc_image\": \"yes\",\n"
            "  \"guest_shim_path\": \"/opt/smolvm-cuda/libcuda.so.1\",\n"
            "  \"result\": \"ready\",\n"
            "  \"kvm_seen_to_work\": \"yes\",\n"
            "  \"gpus\": [\"NVIDIA \\\"A10\\\", 580.1\", \"NVIDIA\\\\H200, 580.1\"],\n"
            "  \"notes\": [\"KVM was seen to work: it has booted the machines' kernel on this "
            "host.\"]\n"
            "}\n");
  EXPECT_EQ(outcome.status, 0);
  DenyKvm();
  outcome = Run("--json");
  EXPECT_THAT(outcome.out, HasSubstr("\"result\": \"blocked\",\n"));
  EXPECT_THAT(outcome.out, HasSubstr("\"notes\": [\"/dev/kvm is there"));
  EXPECT_EQ(outcome.status, 1);
}

TEST_F(PreflightTest, RefusesUnknownArguments) {
  for (const char* arguments : {"--bogus", "x", "--json --bogus"}) {
    const Outcome outcome = Run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("unknown argument '"));
  }
  EXPECT_EQ(Run("--help").status, 0);
}

}  // namespace
}  // namespace smolvm::scripts
