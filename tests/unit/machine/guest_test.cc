#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "machine/guest/cpio.h"
#include "machine/guest/initramfs.h"
#include "machine/guest/kernel.h"
#include "machine/guest/modules.h"
#include "machine/supervise/ready_timeout.h"
#include "machine/util/files.h"
#include "machine/util/tool.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CpioTest, BusyboxReadsIt) {
  if (FindProgram("busybox").empty()) GTEST_SKIP() << "skipped: busybox is not installed";
  const TempFolder folder(fs::temp_directory_path() / "smolvm-guest-test");
  CpioWriter cpio;
  cpio.AddFolder("dir");
  cpio.AddFile("dir/file", "content", 0644);
  cpio.AddFile("empty", "");
  const std::string archive = cpio.Finish();
  EXPECT_EQ(archive.size() % 512, 0u);
  std::ofstream(folder.path() / "a.cpio", std::ios::binary) << archive;
  MustRun({"sh", "-c", "busybox cpio -id < a.cpio"},
          {.doing = "cpio", .workdir = folder.path().string()});
  EXPECT_EQ(ReadFile(folder.path() / "dir/file"), "content");
  EXPECT_EQ(ReadFile(folder.path() / "empty"), "");
}

TEST(ModulesTest, DependenciesComeFromModinfo) {
  const std::string file(
      "\x7f"
      "ELF\0license=GPL\0depends=virtio,virtio_ring\0name=x\0",
      50);
  EXPECT_THAT(ModuleDependencies(file), ElementsAre("virtio", "virtio_ring"));
  EXPECT_THAT(ModuleDependencies(std::string("\0depends=\0", 10)), ElementsAre());
  EXPECT_THAT(ModuleDependencies("no section"), ElementsAre());
}

TEST(ModulesTest, DependenciesAreLoadedFirstAndOnce) {
  const std::map<std::string, std::vector<std::string>> depends = {
      {"vsock", {}},
      {"ring", {}},
      {"virtio", {"ring"}},
      {"mmio", {"virtio", "ring"}},
      {"transport", {"vsock", "virtio"}},
      {"loop", {"loop"}}};
  EXPECT_THAT(LoadOrder({"mmio", "transport", "builtin", "loop"}, depends),
              ElementsAre("ring", "virtio", "mmio", "vsock", "transport", "loop"));
}

TEST(KernelTest, ThePackageIsWhatTheMetaPackageDependsOn) {
  EXPECT_EQ(
      KernelPackageFrom("linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-9-cloud-amd64\n"),
      "linux-image-6.1.0-9-cloud-amd64");
  EXPECT_EQ(KernelPackageFrom("x\n  Depends: linux-base\n  Depends: linux-image-7-amd64\n"),
            "linux-image-7-amd64");
  EXPECT_EQ(KernelPackageFrom("N: Unable to locate package\n"), "");
}

TEST(InitramfsTest, OnlyOurGuestLibrariesGoIn) {
  for (const char* name : {"libcuda.so", "libcuda.so.1", "libcudart.so.12", "libcublasLt.so.13",
                           "libnvidia-ml.so.1"}) {
    EXPECT_TRUE(IsGuestLibrary(name)) << name;
  }
  for (const char* name :
       {"libsmolvm-cuda-emulation.so", "libcuda.so.1.debug", "libcuda.a", "libcudadebugger.so.1"}) {
    EXPECT_FALSE(IsGuestLibrary(name)) << name;
  }
}

TEST(ReadyTimeoutTest, NamesTheLikelyCause) {
  MachineRecord record;
  record.runs_on = "kvm";
  EXPECT_EQ(ReadyTimeout(record), 30u);
  record.memory_mib = 1u << 30;
  EXPECT_THAT(ExplainReadyTimeout(record, ""), HasSubstr("within 30 s"));
  EXPECT_THAT(ExplainReadyTimeout(record, ""), HasSubstr("smaller --mem"));
  record.runs_on = "tcg";
  EXPECT_EQ(ReadyTimeout(record), 300u);
  record.ready_timeout_s = 20;
  EXPECT_EQ(ReadyTimeout(record), 20u);
  record.memory_mib = 1;
  const std::string text = ExplainReadyTimeout(record, "first\r\nlast words\r\n");
  EXPECT_THAT(text, HasSubstr("emulated"));
  EXPECT_THAT(text, HasSubstr("last words"));
  EXPECT_THAT(text, Not(HasSubstr("first")));
  EXPECT_GT(AskHostMemory().total_mib, 0u);
}

}  // namespace
}  // namespace smolvm::machine
