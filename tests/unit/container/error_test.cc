#include "container/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "container/text.h"

namespace smolvm::gpu {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(LaunchError, EachFailureGetsItsHint) {
  const std::pair<const char*, std::string_view> cases[] = {
      {"Error: the '--group-add keep-groups' option is not allowed with any other --group-add "
       "options",
       kKeepGroupsHint},
      {"runc: unknown annotation run.oci.keep_original_groups", kKeepGroupsHint},
      {"nvidia-container-cli: mount error: failed to add device rules", kNvidiaHookHint},
      {"error executing hook `/usr/bin/nvidia-container-runtime-hook` (exit code: 1)",
       kNvidiaHookHint},
      {"Error: setting up CDI devices: unresolvable CDI devices vendor.com/x=7", kCdiHint},
      {"cdi.k8s.io/devices: injection failed", kCdiHint},
      {"stat nvidia.com/gpu=all: no such file or directory", kCdiHint},
      {"stat amd.com/gpu=all: no such file or directory", kCdiHint},
      {"stat intel.com/gpu=0: no such file or directory", kCdiHint},
      {"Error: crun: cannot stat `/usr/lib/x86_64-linux-gnu/libEGL_nvidia.so.570.1`: No such file "
       "or "
       "directory: OCI runtime attempted to invoke a command that was not found",
       kStaleHint},
      {"Error: runc: runc create failed: unable to start container process: error during container "
       "init: error mounting \"/lib/firmware/nvidia/535.1\" to rootfs at "
       "\"/lib/firmware/nvidia/535.1\": no such file or directory: OCI runtime attempted to invoke "
       "a "
       "command that was not found",
       kStaleHint},
      {"Error: setting up CDI devices: failed to inject devices: failed to stat CDI host device "
       "\"/dev/dri/renderD129\": no such file or directory",
       kStaleHint},
      {"Error: stat /dev/kfd: no such file or directory", kStaleHint},
      {"Error: crun: cannot stat `/opt/amdgpu/lib/libdrm_amdgpu.so.1`: No such file or directory: "
       "OCI "
       "runtime error",
       kStaleHint},
      {"Error: crun: cannot stat `/usr/lib/x86_64-linux-gnu/libze_intel_gpu.so.1`: No such file or "
       "directory: OCI runtime error",
       kStaleHint},
      {"a warning\nError: crun: error executing hook `/usr/bin/nvidia-ctk` (exit code: 1): OCI "
       "runtime "
       "error",
       kSpecHookHint},
      {"Error: crun: error executing hook `/usr/bin/amd-ctk` (exit code: 1): OCI runtime error",
       kSpecHookHint},
  };
  for (const auto& [text, hint] : cases) EXPECT_EQ(HintForLaunchError(text), hint) << text;
}

TEST(LaunchError, TheOrderIsGroupsHookCdi) {
  EXPECT_EQ(HintForLaunchError("CDI nvidia-container-cli keep-groups"), kKeepGroupsHint);
  EXPECT_EQ(HintForLaunchError("nvidia.com/gpu nvidia-container-cli"), kNvidiaHookHint);
}

TEST(LaunchError, AnythingElseIsNoneOfOurs) {
  for (const char* text :
       {"", "Error: no such image", "cdi", "nvidia-smi: not found", "Error: unknown flag: --gpus",
        // What a program says, and one that the image lacks.
        "cannot open /usr/lib/libcuda.so.1: No such file or directory",
        "Error: crun: executable file `nvidia-smi` not found in $PATH: No such file "
        "or directory: OCI runtime attempted to invoke a command that was not found",
        "Error: runc: runc create failed: unable to start container process: exec: "
        "\"/usr/bin/nvidia-smi\": stat: executable file not found in $PATH",
        "Error: crun: cannot stat `/srv/data`: No such file or directory: OCI "
        "runtime error"}) {
    EXPECT_FALSE(HintForLaunchError(text)) << text;
    EXPECT_NO_THROW(check_gpu_error(text));
  }
}

TEST(LaunchError, TheMessageCarriesPodmansTextAndTheHint) {
  try {
    check_gpu_error("\n Error: unresolvable CDI devices nvidia.com/gpu=7\n\n");
    FAIL();
  } catch (const GpuConfigError& error) {
    EXPECT_EQ(error.what(),
              "Container launch failed (GPU misconfiguration):\nError: unresolvable CDI devices "
              "nvidia.com/gpu=7\n\n" +
                  std::string(kCdiHint));
    EXPECT_EQ(error.hint(), kCdiHint);
  }
}

TEST(LaunchError, TheDefaultHintIsTheCdiOne) { EXPECT_EQ(GpuConfigError("x").hint(), kCdiHint); }

TEST(LaunchError, BytesThatAreNotUtf8AreReplaced) {
  const std::string text("CDI \xff\xc3\x28 \0 \xf0\x9f\x92\xa9 \xe2\x82", 17);
  try {
    check_gpu_error(text);
    FAIL();
  } catch (const GpuConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith("Container launch failed"));
    EXPECT_THAT(std::string(error.what()).substr(0, 80), HasSubstr("CDI \uFFFD\uFFFD("));
  }
}

TEST(Text, OnlyWellFormedUtf8IsKept) {
  for (const char* good : {"", "a", "\u00e9", "\uFFFD", "\U0001F4A9", "\uD7FF", "\uE000"}) {
    EXPECT_EQ(ReplaceInvalidUtf8(good), good);
  }
  const std::string bad = "\uFFFD";
  EXPECT_EQ(ReplaceInvalidUtf8("\x80"), bad);
  EXPECT_EQ(ReplaceInvalidUtf8("\xc0\x80"), bad + bad);                      // overlong
  EXPECT_EQ(ReplaceInvalidUtf8("\xed\xa0\x80"), bad + bad + bad);            // a surrogate
  EXPECT_EQ(ReplaceInvalidUtf8("\xf4\x90\x80\x80"), bad + bad + bad + bad);  // beyond U+10FFFF
  EXPECT_EQ(ReplaceInvalidUtf8("x\xe2\x82"), "x" + bad + bad);               // cut short
}

}  // namespace
}  // namespace smolvm::gpu
