#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr char kVisibleAll[] = "NVIDIA_VISIBLE_DEVICES=all";
constexpr char kCapabilities[] = "NVIDIA_DRIVER_CAPABILITIES=all";

// Removes the environment that every tier adds, checking it.
Words DevicesOnly(Words args, const std::string& visible) {
  const Words environment = {"-e", "NVIDIA_VISIBLE_DEVICES=" + visible, "-e", kCapabilities};
  EXPECT_GE(args.size(), environment.size());
  EXPECT_EQ(Words(args.end() - 4, args.end()), environment);
  args.resize(args.size() - 4);
  return args;
}

TEST(Nvidia, CdiFirst) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  fixture.Write("/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}");
  fixture.NvidiaNodes({0, 1});
  EXPECT_EQ(ArgsOf(fixture, "nvidia"),
            (Words{"--device", "nvidia.com/gpu=all", "-e", kVisibleAll, "-e", kCapabilities}));
  EXPECT_EQ(DevicesOnly(ArgsOf(fixture, "nvidia:1,nvidia:0"), "0,1"),
            (Words{"--device", "nvidia.com/gpu=0", "--device", "nvidia.com/gpu=1"}));
  EXPECT_THAT(fixture.warnings, IsEmpty());  // the numbers are the vendor's own
}

TEST(Nvidia, CdiInYaml) {
  FixtureHost fixture;
  fixture.Write("/var/run/cdi/nvidia.yaml",
                "cdiVersion: 0.5.0\ndevices:\n- name: \"0\"\n- name: all\nkind: nvidia.com/gpu\n");
  EXPECT_EQ(DevicesOnly(ArgsOf(fixture, "nvidia:0"), "0"), (Words{"--device", "nvidia.com/gpu=0"}));
}

TEST(Nvidia, ACdiNameThatTheSpecLacksFailsBeforePodman) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu", {"0", "GPU-1234"});
  EXPECT_THAT(ErrorOf(fixture, "nvidia:1"),
              AllOf(HasSubstr("no device nvidia.com/gpu=1"), HasSubstr("they declare 0, GPU-1234"),
                    HasSubstr("/etc/cdi/nvidia.json"), HasSubstr("nvidia-ctk cdi generate")));
  EXPECT_THAT(ErrorOf(fixture, "nvidia"), HasSubstr("no device nvidia.com/gpu=all"));
}

// podman passes over such a spec, so that no other means may take its place in silence.
TEST(Nvidia, ASpecThatNamesNoDevicesIsRefused) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0});
  fixture.Write("/etc/cdi/nvidia.yaml", "kind: nvidia.com/gpu\n");
  EXPECT_THAT(ErrorOf(fixture, "nvidia:5"), HasSubstr("declare no device at all"));
}

TEST(Nvidia, TheHookNeedsNoDevices) {
  for (const char* folder : {"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"}) {
    FixtureHost fixture;
    fixture.Write(std::string(folder) + "/oci-nvidia-hook.json", "{}");
    fixture.NvidiaNodes({0});
    EXPECT_THAT(DevicesOnly(ArgsOf(fixture, "nvidia"), "all"), IsEmpty());
    EXPECT_THAT(DevicesOnly(ArgsOf(fixture, "nvidia:1,nvidia:0"), "0,1"), IsEmpty());
    EXPECT_THAT(fixture.warnings, IsEmpty());
  }
}

TEST(Nvidia, RawGrantsEveryNode) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0, 1, 10, 2});
  fixture.Node("/dev/nvidia-modeset");
  fixture.Node("/dev/nvidia-caps/nvidia-cap1");
  fixture.Node("/dev/nvidia-caps/nvidia-cap2");
  fixture.Node("/dev/null");
  EXPECT_EQ(
      DevicesOnly(ArgsOf(fixture, "nvidia"), "all"),
      (Words{"--device", "/dev/nvidia0", "--device", "/dev/nvidia1", "--device", "/dev/nvidia2",
             "--device", "/dev/nvidia10", "--device", "/dev/nvidia-caps/nvidia-cap1", "--device",
             "/dev/nvidia-caps/nvidia-cap2", "--device", "/dev/nvidia-modeset", "--device",
             "/dev/nvidia-uvm", "--device", "/dev/nvidiactl"}));
}

TEST(Nvidia, RawIndicesCountInPciOrderNotByMinor) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0, 1, 2});
  fixture.NvidiaCard("0000:81:00.0", 0);
  fixture.NvidiaCard("0000:01:00.0", 2);
  fixture.NvidiaCard("0000:41:00.0", 1);
  const Words args = DevicesOnly(ArgsOf(fixture, "nvidia:0,nvidia:2"), "0,2");
  EXPECT_EQ(args, (Words{"--device", "/dev/nvidia2", "--device", "/dev/nvidia0", "--device",
                         "/dev/nvidia-uvm", "--device", "/dev/nvidiactl"}));
  EXPECT_THAT(fixture.warnings,
              ElementsAre(AllOf(HasSubstr("'nvidia'"), HasSubstr("best effort"),
                                HasSubstr("PCI bus order"), HasSubstr("may differ"))));
}

TEST(Nvidia, OneTwoAndEightCards) {
  for (int cards : {1, 2, 8}) {
    FixtureHost fixture;
    std::vector<int> minors;
    for (int i = 0; i < cards; ++i) {
      minors.push_back(i);
      fixture.NvidiaCard("0000:" + std::to_string(i + 1) + "1:00.0", cards - 1 - i);
    }
    fixture.NvidiaNodes(minors);
    for (int i = 0; i < cards; ++i) {
      const std::string token = "nvidia:" + std::to_string(i);
      EXPECT_EQ(DevicesOnly(ArgsOf(fixture, token), std::to_string(i))[1],
                "/dev/nvidia" + std::to_string(cards - 1 - i));
    }
    const std::string beyond = "nvidia:" + std::to_string(cards);
    EXPECT_THAT(ErrorOf(fixture, beyond),
                AllOf(HasSubstr(beyond + " is out of range"),
                      HasSubstr("has " + std::to_string(cards) + " NVIDIA card(s)"),
                      HasSubstr("nvidia:0=0000:11:00.0")));
    EXPECT_THAT(gpu_device_addresses(fixture.host().root)[0], SizeIs(cards));
  }
}

TEST(Nvidia, AGapInTheMinorsRejectsTheWholeMap) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0, 1, 2});
  fixture.NvidiaCard("0000:01:00.0", 0);
  fixture.NvidiaCard("0000:02:00.0", -1);
  fixture.NvidiaCard("0000:03:00.0", 2);
  // Even index 0, whose minor can be read: nothing says that the numbering can be trusted.
  EXPECT_THAT(ErrorOf(fixture, "nvidia:0"),
              AllOf(HasSubstr("0000:02:00.0/information"), HasSubstr("Grant the whole vendor")));
  EXPECT_THAT(ArgsOf(fixture, "nvidia"), SizeIs(14));
  EXPECT_THAT(fixture.warnings, IsEmpty());
}

TEST(Nvidia, MalformedMinorsRejectTheMap) {
  for (const char* line : {"Device Minor:\n", "Device Minor: x\n", "Device Minor: 1x\n",
                           "Device Minor: -1\n", "Device Minor: 99999999999\n", "Minor: 1\n", ""}) {
    FixtureHost fixture;
    fixture.NvidiaNodes({0});
    fixture.Write("/proc/driver/nvidia/gpus/0000:01:00.0/information", line);
    EXPECT_THAT(ErrorOf(fixture, "nvidia:0"), HasSubstr("no 'Device Minor'")) << line;
  }
}

TEST(Nvidia, TwoCardsWithOneMinorRejectTheMap) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0, 1});
  fixture.NvidiaCard("0000:01:00.0", 0);
  fixture.NvidiaCard("0000:02:00.0", 0);
  EXPECT_THAT(ErrorOf(fixture, "nvidia:1"), HasSubstr("repeats the minor"));
}

TEST(Nvidia, WithoutAMapThereAreNoIndices) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0});
  EXPECT_THAT(ErrorOf(fixture, "nvidia:0"), HasSubstr("/proc/driver/nvidia/gpus lists no cards"));
}

TEST(Nvidia, ACardWithoutItsNodeIsAnError) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0});
  fixture.NvidiaCard("0000:01:00.0", 0);
  fixture.NvidiaCard("0000:02:00.0", 1);
  EXPECT_THAT(ErrorOf(fixture, "nvidia:1"), HasSubstr("/dev/nvidia1, which does not exist"));
}

TEST(Nvidia, ControlNodeWithoutCardsWarns) {
  FixtureHost fixture;
  fixture.NvidiaNodes({});
  EXPECT_THAT(DevicesOnly(ArgsOf(fixture, "nvidia"), "all"), SizeIs(4));
  EXPECT_THAT(fixture.warnings, ElementsAre(HasSubstr("no card's node")));
}

TEST(Nvidia, NothingSaysWhatIsMissingAndHowToGetIt) {
  FixtureHost fixture;
  fixture.Node("/dev/nvidia0");  // without nvidiactl this is no driver
  EXPECT_THAT(ErrorOf(fixture, "nvidia"),
              AllOf(HasSubstr("no CDI spec declares nvidia.com/gpu (looked in /etc/cdi"),
                    HasSubstr("oci-nvidia-hook.json"), HasSubstr("/dev/nvidiactl"),
                    HasSubstr("nvidia-ctk cdi generate")));
  EXPECT_THAT(detect_gpu_vendors(fixture.host()), IsEmpty());
}

}  // namespace
}  // namespace smolvm::gpu
