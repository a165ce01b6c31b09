// AMD and Intel: what is granted through /dev/dri.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using ByPath = FixtureHost::ByPath;

std::string LinkMount(const std::string& address) {
  const std::string link = "/dev/dri/by-path/pci-" + address + "-render";
  return "type=bind,source=" + link + ",destination=" + link + ",ro=true";
}

TEST(Amd, Cdi) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  EXPECT_EQ(ArgsOf(fixture, "amd"),
            (Words{"--device", "amd.com/gpu=all", "--group-add", "keep-groups"}));
  EXPECT_EQ(ArgsOf(fixture, "amd:1"),
            (Words{"--device", "amd.com/gpu=1", "--group-add", "keep-groups"}));
  EXPECT_THAT(fixture.warnings, IsEmpty());
}

TEST(Amd, RawGrantsKfdAndItsOwnNodesInPciOrder) {
  FixtureHost fixture;
  fixture.Node("/dev/kfd");
  fixture.RenderNode("renderD128", "0000:83:00.0", kAmdId, ByPath::kPresent);
  fixture.RenderNode("renderD129", "0000:00:02.0", kIntelId, ByPath::kPresent);
  fixture.RenderNode("renderD130", "0000:03:00.0", kAmdId, ByPath::kPresent);
  EXPECT_EQ(ArgsOf(fixture, "amd"),
            (Words{"--device", "/dev/kfd", "--device", "/dev/dri/renderD130", "--mount",
                   LinkMount("0000:03:00.0"), "--device", "/dev/dri/renderD128", "--mount",
                   LinkMount("0000:83:00.0"), "--group-add", "keep-groups"}));
  EXPECT_THAT(fixture.warnings, IsEmpty());
}

TEST(Amd, AnIndexGrantsOneNodeAndWarnsOnce) {
  FixtureHost fixture;
  fixture.Node("/dev/kfd");
  fixture.RenderNode("renderD128", "0000:83:00.0", kAmdId);
  fixture.RenderNode("renderD130", "0000:03:00.0", kAmdId);
  fixture.RenderNode("renderD131", "0000:c3:00.0", kAmdId);
  EXPECT_EQ(ArgsOf(fixture, "amd:1"), (Words{"--device", "/dev/kfd", "--device",
                                             "/dev/dri/renderD128", "--group-add", "keep-groups"}));
  fixture.warnings.clear();
  ArgsOf(fixture, "amd:0,amd:2");
  EXPECT_THAT(fixture.warnings, ElementsAre(AllOf(HasSubstr("'amd'"), HasSubstr("best effort"))));
}

TEST(Amd, OutOfRangeListsWhatThereIs) {
  FixtureHost fixture;
  fixture.Node("/dev/kfd");
  fixture.RenderNode("renderD128", "0000:83:00.0", kAmdId);
  fixture.RenderNode("renderD129", "0000:03:00.0", kAmdId);
  EXPECT_THAT(ErrorOf(fixture, "amd:2"),
              AllOf(HasSubstr("amd:2 is out of range"),
                    HasSubstr("amd:0=0000:03:00.0, amd:1=0000:83:00.0")));
  EXPECT_THAT(fixture.warnings, IsEmpty());
}

TEST(Amd, KfdWithoutRenderNodesIsAnErrorAndNotDetected) {
  FixtureHost fixture;
  fixture.Node("/dev/kfd");
  fixture.RenderNode("renderD128", "0000:00:02.0", kIntelId);
  EXPECT_THAT(ErrorOf(fixture, "amd"),
              AllOf(HasSubstr("no render node of vendor 0x1002"), HasSubstr("amdgpu")));
  EXPECT_THAT(ErrorOf(fixture, "amd:0"), HasSubstr("no render node of vendor 0x1002"));
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), ElementsAre(GpuVendor::kIntel));
}

TEST(Amd, RenderNodesWithoutKfdAreAnErrorAndNotDetected) {
  FixtureHost fixture;
  fixture.RenderNode("renderD128", "0000:03:00.0", kAmdId);
  EXPECT_THAT(ErrorOf(fixture, "amd"), AllOf(HasSubstr("no CDI spec declares amd.com/gpu"),
                                             HasSubstr("/dev/kfd"), HasSubstr("modprobe amdgpu")));
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), IsEmpty());
}

// i915 and xe differ in the driver's name, which nothing here depends on.
TEST(Intel, RawWithEitherKernelDriver) {
  for (const char* driver : {"i915", "xe"}) {
    FixtureHost fixture;
    fixture.RenderNode("renderD128", "0000:00:02.0", kIntelId, ByPath::kPresent);
    fixture.Link("/sys/devices/pci0000:00/0000:00:02.0/driver",
                 std::string("../../../bus/pci/drivers/") + driver);
    EXPECT_EQ(ArgsOf(fixture, "intel"),
              (Words{"--device", "/dev/dri/renderD128", "--mount", LinkMount("0000:00:02.0"),
                     "--group-add", "keep-groups"}))
        << driver;
  }
}

TEST(Intel, Cdi) {
  FixtureHost fixture;
  fixture.CdiJson("intel.json", "intel.com/gpu", {"0000-03-00-0"});
  EXPECT_THAT(ErrorOf(fixture, "intel"), AllOf(HasSubstr("no device intel.com/gpu=all"),
                                               HasSubstr("they declare 0000-03-00-0")));
  fixture.CdiJson("intel.json", "intel.com/gpu", {"0", "all"});
  EXPECT_EQ(ArgsOf(fixture, "intel"),
            (Words{"--device", "intel.com/gpu=all", "--group-add", "keep-groups"}));
}

TEST(Intel, NothingSaysWhatIsMissing) {
  FixtureHost fixture;
  EXPECT_THAT(ErrorOf(fixture, "intel:0"),
              AllOf(HasSubstr("no CDI spec declares intel.com/gpu"),
                    HasSubstr("no render node of vendor 0x8086"), HasSubstr("i915 or xe")));
}

TEST(Dri, ByPathLinksRideAlongWhereTheyExist) {
  FixtureHost fixture;
  fixture.RenderNode("renderD128", "0000:00:02.0", kIntelId, ByPath::kAbsent);
  fixture.RenderNode("renderD129", "0000:03:00.0", kIntelId, ByPath::kPresent);
  fixture.RenderNode("renderD130", "0000:04:00.0", kIntelId, ByPath::kAbsent);
  fixture.Link("/dev/dri/by-path/pci-0000:04:00.0-render", "../gone");  // dangling
  fixture.Link("/dev/dri/by-path/pci-0000:03:00.0-card", "../card0");   // another node's
  EXPECT_EQ(ArgsOf(fixture, "intel"),
            (Words{"--device", "/dev/dri/renderD128", "--device", "/dev/dri/renderD129", "--mount",
                   LinkMount("0000:03:00.0"), "--device", "/dev/dri/renderD130", "--group-add",
                   "keep-groups"}));
}

TEST(Dri, OnlyRenderNodesOfTheVendorCount) {
  FixtureHost fixture;
  fixture.RenderNode("renderD128", "0000:02:00.0", kAspeedId);
  fixture.RenderNode("renderD129", "0000:03:00.0", "0x80867");
  fixture.RenderNode("renderD", "0000:04:00.0", kIntelId);
  fixture.RenderNode("renderD12x", "0000:05:00.0", kIntelId);
  fixture.RenderNode("card0", "0000:06:00.0", kIntelId);
  EXPECT_THAT(gpu_device_addresses(fixture.host().root)[2], IsEmpty());
}

TEST(Dri, UnreadableSysfsEntriesAreLeftOut) {
  FixtureHost fixture;
  fixture.Directory("/sys/class/drm/renderD128/device/vendor");  // reading it fails
  fixture.Link("/sys/class/drm/renderD129", "../../devices/gone");
  fixture.RenderNode("renderD130", "0000:03:00.0", kIntelId);
  EXPECT_THAT(gpu_device_addresses(fixture.host().root)[2], ElementsAre("0000:03:00.0"));
  std::filesystem::remove_all(fixture.Real("/sys/class/drm"));
  fixture.Write("/sys/class/drm", "not a folder");
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), IsEmpty());
}

TEST(Dri, SysfsWithoutPermissionIsLeftOut) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  FixtureHost fixture;
  fixture.RenderNode("renderD128", "0000:03:00.0", kIntelId);
  ASSERT_EQ(chmod(fixture.Real("/sys/devices/pci0000:00/0000:03:00.0/vendor").c_str(), 0), 0);
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), IsEmpty());
}

TEST(Dri, ANodeWithoutADeviceLinkSortsByItsName) {
  FixtureHost fixture;
  fixture.Write("/sys/class/drm/renderD128/device/vendor", "0x8086\n");  // no link: no address
  fixture.Node("/dev/dri/renderD128");
  fixture.RenderNode("renderD129", "0000:03:00.0", kIntelId);
  EXPECT_THAT(gpu_device_addresses(fixture.host().root)[2],
              ElementsAre("0000:03:00.0", "renderD128"));
  EXPECT_EQ(ArgsOf(fixture, "intel:1"),
            (Words{"--device", "/dev/dri/renderD128", "--group-add", "keep-groups"}));
}

TEST(Dri, ANodeThatDevLacksIsNeverPassedInSilence) {
  FixtureHost fixture;
  fixture.RenderNode("renderD128", "0000:03:00.0", kIntelId);
  fixture.RenderNode("renderD129", "0000:04:00.0", kIntelId);
  std::filesystem::remove(fixture.Real("/dev/dri/renderD128"));
  EXPECT_THAT(ErrorOf(fixture, "intel:0"), HasSubstr("/dev/dri/renderD128 does not exist here"));
  EXPECT_THAT(ArgsOf(fixture, "intel"),
              ElementsAre("--device", "/dev/dri/renderD129", "--group-add", "keep-groups"));
  EXPECT_THAT(fixture.warnings, ElementsAre(HasSubstr("0000:03:00.0 is not passed")));
  std::filesystem::remove(fixture.Real("/dev/dri/renderD129"));
  EXPECT_THAT(ErrorOf(fixture, "intel"), HasSubstr("no render node"));
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), IsEmpty());
}

}  // namespace
}  // namespace smolvm::gpu
