// Several vendors in one host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

// A server with every vendor's cards, all raw, and the display device of its BMC.
void MakeMixed(FixtureHost& fixture) {
  fixture.NvidiaNodes({0, 1});
  fixture.NvidiaCard("0000:41:00.0", 1);
  fixture.NvidiaCard("0000:c1:00.0", 0);
  fixture.Node("/dev/kfd");
  fixture.RenderNode("renderD128", "0000:81:00.0", kAmdId, FixtureHost::ByPath::kPresent);
  fixture.RenderNode("renderD129", "0000:41:00.0", kNvidiaId, FixtureHost::ByPath::kPresent);
  fixture.RenderNode("renderD130", "0000:00:02.0", kIntelId);
  fixture.RenderNode("renderD131", "0000:05:00.0", kAspeedId, FixtureHost::ByPath::kPresent);
  fixture.Node("/dev/dri/card0");
}

TEST(MixedHost, AllPassesEveryVendorAndNothingElse) {
  FixtureHost fixture;
  MakeMixed(fixture);
  const Words args = ArgsOf(fixture, "all");
  const std::string link = "/dev/dri/by-path/pci-0000:81:00.0-render";
  EXPECT_EQ(args,
            (Words{"--device",    "/dev/nvidia0",
                   "--device",    "/dev/nvidia1",
                   "--device",    "/dev/nvidia-uvm",
                   "--device",    "/dev/nvidiactl",
                   "-e",          "NVIDIA_VISIBLE_DEVICES=all",
                   "-e",          "NVIDIA_DRIVER_CAPABILITIES=all",
                   "--device",    "/dev/kfd",
                   "--device",    "/dev/dri/renderD128",
                   "--mount",     "type=bind,source=" + link + ",destination=" + link + ",ro=true",
                   "--group-add", "keep-groups",
                   "--device",    "/dev/dri/renderD130"}));
  EXPECT_THAT(args, Not(Contains(HasSubstr("renderD131"))));
  EXPECT_THAT(args, Not(Contains(HasSubstr("card0"))));
  EXPECT_THAT(args, Not(Contains("/dev/dri")));
  EXPECT_THAT(fixture.warnings, IsEmpty());
}

TEST(MixedHost, KeepGroupsIsEmittedOnceInItsFirstPlace) {
  FixtureHost fixture;
  MakeMixed(fixture);
  const Words args = ArgsOf(fixture, "intel,amd");
  EXPECT_EQ(std::count(args.begin(), args.end(), "keep-groups"), 1);
  EXPECT_EQ(args[args.size() - 1], "/dev/dri/renderD130");
  EXPECT_EQ(args[args.size() - 3], "keep-groups");
}

TEST(MixedHost, EachIndexedRawVendorWarnsOnce) {
  FixtureHost fixture;
  MakeMixed(fixture);
  ArgsOf(fixture, "nvidia:0,nvidia:1,amd:0,intel");
  EXPECT_THAT(fixture.warnings, ElementsAre(HasSubstr("'nvidia'"), HasSubstr("'amd'")));
}

TEST(MixedHost, OneVendorThatFailsFailsTheWhole) {
  FixtureHost fixture;
  fixture.RenderNode("renderD130", "0000:00:02.0", kIntelId);
  EXPECT_THAT(ErrorOf(fixture, "intel,amd"), HasSubstr("cannot pass amd"));
}

TEST(MixedHost, MechanismsMayDiffer) {
  FixtureHost fixture;
  MakeMixed(fixture);
  fixture.CdiJson("amd.json", "amd.com/gpu", {"0", "all"});
  const std::vector<DetectedVendor> detected = DetectGpus(fixture.host());
  ASSERT_THAT(detected, SizeIs(3));
  EXPECT_EQ(detected[0].mechanism, Mechanism::kRaw);
  EXPECT_THAT(detected[0].addresses, ElementsAre("0000:41:00.0", "0000:c1:00.0"));
  EXPECT_EQ(detected[1].mechanism, Mechanism::kCdi);
  EXPECT_THAT(detected[1].addresses, ElementsAre("0000:81:00.0"));
  EXPECT_THAT(detected[1].cdi_devices, ElementsAre("0", "all"));
  EXPECT_EQ(detected[2].mechanism, Mechanism::kRaw);
  EXPECT_THAT(ArgsOf(fixture, "all"), Not(Contains("/dev/kfd")));
}

TEST(MixedHost, OffIsNothingAndAsksNobody) {
  FixtureHost fixture;
  fixture.PodmanScript("touch \"$0.asked\"; echo null");
  EXPECT_THAT(ArgsOf(fixture, ""), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(fixture.host().podman.program + ".asked"));
}

TEST(BareHost, AllListsWhatWasLookedFor) {
  FixtureHost fixture;
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), IsEmpty());
  EXPECT_THAT(ErrorOf(fixture, "all"),
              AllOf(HasSubstr("nvidia.com/gpu, amd.com/gpu, intel.com/gpu"), HasSubstr("/etc/cdi"),
                    HasSubstr("oci-nvidia-hook.json"), HasSubstr("/dev/nvidiactl"),
                    HasSubstr("/dev/kfd"), HasSubstr("Intel render node")));
}

TEST(EightGpus, EveryIndexNamesItsOwnNode) {
  FixtureHost fixture;
  fixture.Node("/dev/kfd");
  std::set<std::string> granted;
  for (int i = 0; i < 8; ++i) {  // render numbers against the order of the bus
    fixture.RenderNode("renderD" + std::to_string(135 - i),
                       "0000:" + std::to_string(i + 1) + "3:00.0", kAmdId);
  }
  for (int i = 0; i < 8; ++i) {
    const Words args = ArgsOf(fixture, "amd:" + std::to_string(i));
    EXPECT_EQ(args[3], "/dev/dri/renderD" + std::to_string(135 - i));
    granted.insert(args[3]);
  }
  EXPECT_THAT(granted, SizeIs(8));
}

}  // namespace
}  // namespace smolvm::gpu
