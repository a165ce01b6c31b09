#include "container/cdi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A podman that answers both questions it may be asked.
std::string Answers(std::string_view specs, std::string_view version) {
  return "case $1 in\n info) " + std::string(specs) + ";;\n --version) echo podman version " +
         std::string(version) + ";;\n *) exit 64;;\nesac\n";
}

TEST(Cdi, ABareHostDeclaresNothing) {
  FixtureHost fixture;
  const CdiSpecs cdi = LoadCdiSpecs(fixture.host());
  EXPECT_THAT(cdi.kinds, IsEmpty());
  EXPECT_EQ(cdi.looked_in, "/etc/cdi, /var/run/cdi");
  EXPECT_FALSE(check_gpu_available(fixture.host()));
}

TEST(Cdi, ReadsBothDirectories) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  fixture.Write("/var/run/cdi/amd.yaml", "kind: amd.com/gpu\ndevices:\n- name: all\n");
  const CdiSpecs cdi = LoadCdiSpecs(fixture.host());
  EXPECT_THAT(cdi.Declared(GpuVendor::kNvidia)->files, ElementsAre("/etc/cdi/nvidia.json"));
  EXPECT_THAT(cdi.Declared(GpuVendor::kNvidia)->Names(), ElementsAre("0", "1", "all"));
  EXPECT_THAT(cdi.Declared(GpuVendor::kAmd)->Names(), ElementsAre("all"));
  EXPECT_EQ(cdi.Declared(GpuVendor::kIntel), nullptr);
  EXPECT_TRUE(check_gpu_available(fixture.host()));
}

TEST(Cdi, SpecsOfOneKindAddUp) {
  FixtureHost fixture;
  fixture.CdiJson("a.json", "intel.com/gpu", {"0"});
  fixture.CdiJson("b.json", "intel.com/gpu", {"0", "1"});
  const CdiSpecs cdi = LoadCdiSpecs(fixture.host());
  EXPECT_THAT(cdi.Declared(GpuVendor::kIntel)->Names(), ElementsAre("0", "1"));
  EXPECT_THAT(cdi.Declared(GpuVendor::kIntel)->files, SizeIs(2));
}

// Every vendor's kind, and what its devices are refused for before podman is started.
class UnusableCdi : public ::testing::TestWithParam<GpuVendor> {
 protected:
  std::string vendor() const { return std::string(VendorName(GetParam())); }
  std::string kind() const { return std::string(CdiKind(GetParam())); }
  void Spec(const std::string& file, const std::string& devices) {
    fixture_.Write(file, "cdiVersion: 0.5.0\nkind: " + kind() + "\n" + devices);
  }
  std::string Error(const std::string& index) { return ErrorOf(fixture_, vendor() + index); }

  FixtureHost fixture_;
};

TEST_P(UnusableCdi, NoDeviceAtAll) {
  Spec("/etc/cdi/a.yaml", "devices: []\n");
  EXPECT_THAT(Error(""), HasSubstr("the CDI specs of " + kind() +
                                   " declare no device at all (/etc/cdi/a.yaml), and podman"));
  EXPECT_THAT(Error(":0"), HasSubstr("no device at all"));
  // Another spec that has some makes up for it.
  Spec("/etc/cdi/b.yaml", "devices: [{name: all}]\n");
  EXPECT_THAT(ArgsOf(fixture_, vendor()), ::testing::Contains(kind() + "=all"));
}

TEST_P(UnusableCdi, ADeviceThatTwoSpecsOfOneFolderDeclare) {
  Spec("/etc/cdi/a.yaml", "devices: [{name: '0'}, {name: '1'}]\n");
  Spec("/etc/cdi/b.yaml", "devices: [{name: '0'}]\n");
  EXPECT_THAT(Error(":0"),
              HasSubstr("the device " + kind() +
                        "=0 is declared by more than one CDI spec of a folder "
                        "(/etc/cdi/a.yaml, /etc/cdi/b.yaml), and podman resolves none"));
  EXPECT_THAT(ArgsOf(fixture_, vendor() + ":1"), ::testing::Contains(kind() + "=1"));
  // A later folder's does not help, as the CDI library has it.
  Spec("/var/run/cdi/c.yaml", "devices: [{name: '0'}]\n");
  EXPECT_THAT(Error(":0"), HasSubstr("more than one CDI spec of a folder"));
}

TEST_P(UnusableCdi, ADeviceThatOneSpecDeclaresTwice) {
  Spec("/etc/cdi/a.yaml", "devices: [{name: '0'}, {name: '0'}]\n");
  EXPECT_THAT(Error(":0"),
              HasSubstr("the CDI spec /etc/cdi/a.yaml declares " + kind() + "=0 twice"));
}

TEST_P(UnusableCdi, TheLaterFoldersSpecIsTheOneThatCounts) {
  Spec("/etc/cdi/a.yaml",
       "devices: [{name: '0', containerEdits: {deviceNodes: [{path: /dev/gone}]}}]\n");
  EXPECT_THAT(Error(":0"), HasSubstr("stale"));
  Spec("/var/run/cdi/a.yaml", "devices: [{name: '0'}]\n");
  EXPECT_THAT(ArgsOf(fixture_, vendor() + ":0"), ::testing::Contains(kind() + "=0"));
}

TEST_P(UnusableCdi, AStaleSpec) {
  const std::string spec =
      "devices:\n- name: '0'\n  containerEdits:\n    deviceNodes:\n"
      "    - {path: /dev/gpu0}\n"
      "    - {path: /dev/inside, hostPath: /dev/outside}\n"
      "    - {path: /dev/numbered, type: c, major: 226, minor: 128}\n"
      "- name: '1'\n"
      "containerEdits:\n"
      "  hooks: [{hookName: createContainer, path: /usr/bin/tool, args: [tool, /no/path]}]\n"
      "  mounts:\n"
      "  - {hostPath: /lib/driver.so.570.1, containerPath: /lib/driver.so, options: [ro, bind]}\n"
      "  - {hostPath: tmpfs, containerPath: /scratch, type: tmpfs}\n";
  Spec("/etc/cdi/a.yaml", spec);
  const std::string stale = "the CDI spec /etc/cdi/a.yaml is stale: for " + kind();
  EXPECT_THAT(Error(":0"),
              HasSubstr(stale + "=0 it names /usr/bin/tool and 3 more, which this host"));
  for (const char* path : {"/usr/bin/tool", "/lib/driver.so.570.1", "/dev/gpu0"})
    fixture_.Node(path);
  EXPECT_THAT(Error(":0"), HasSubstr(stale + "=0 it names /dev/outside, which this host"));
  EXPECT_THAT(ArgsOf(fixture_, vendor() + ":1"), ::testing::Contains(kind() + "=1"));
  fixture_.Node("/dev/outside");
  EXPECT_THAT(ArgsOf(fixture_, vendor() + ":0"), ::testing::Contains(kind() + "=0"));
}

INSTANTIATE_TEST_SUITE_P(Vendors, UnusableCdi, ::testing::ValuesIn(GPU_VENDORS),
                         [](const auto& info) { return std::string(VendorName(info.param)); });

TEST(Cdi, DetectionWarnsOfWhatCannotBePassed) {
  FixtureHost fixture;
  fixture.Write("/etc/cdi/a.yaml",
                "kind: nvidia.com/gpu\ndevices: [{name: all, containerEdits: {mounts: [{hostPath: "
                "/lib/libEGL_nvidia.so.570.1, containerPath: /x}]}}]\n");
  EXPECT_THAT(DetectGpus(fixture.host()), SizeIs(1));
  EXPECT_THAT(fixture.warnings, ElementsAre(HasSubstr("it names /lib/libEGL_nvidia.so.570.1")));
}

TEST(Cdi, ForeignFilesAndCommentsDoNotCount) {
  FixtureHost fixture;
  fixture.Write("/etc/cdi/README", "kind: nvidia.com/gpu\n");
  fixture.Write("/etc/cdi/nvidia.json.rpmsave", R"({"kind": "nvidia.com/gpu"})");
  fixture.Write("/etc/cdi/x.yaml",
                "# nvidia.com/gpu\nkind: vendor.com/nic\nx: nvidia.com/gpu=all\n");
  fixture.Write("/etc/cdi/broken.yaml", "kind: nvidia.com/gpu\nx: [\n");
  fixture.Directory("/etc/cdi/folder.json");
  fixture.Link("/etc/cdi/dangling.json", "nowhere");
  const CdiSpecs cdi = LoadCdiSpecs(fixture.host());
  EXPECT_EQ(cdi.Declared(GpuVendor::kNvidia), nullptr);
  EXPECT_THAT(cdi.kinds, SizeIs(1));
  EXPECT_THAT(cdi.skipped, ElementsAre(HasSubstr("/etc/cdi/broken.yaml: not valid YAML at line"),
                                       HasSubstr("/etc/cdi/dangling.json: "),
                                       "/etc/cdi/folder.json: not a regular file"));
}

TEST(Cdi, AnUnreadableSpecHidesNoOther) {
  FixtureHost fixture;
  fixture.Write("/etc/cdi/a.json", "{");
  fixture.CdiJson("b.json", "nvidia.com/gpu");
  EXPECT_NE(LoadCdiSpecs(fixture.host()).Declared(GpuVendor::kNvidia), nullptr);
  EXPECT_THAT(ArgsOf(fixture, "nvidia"), SizeIs(6));
  EXPECT_THAT(fixture.warnings, ElementsAre(HasSubstr("passed over the CDI spec /etc/cdi/a.json")));
}

TEST(Cdi, HundredsOfSpecsAreReadAndFewWarnedOf) {
  FixtureHost fixture;
  for (int i = 0; i < 300; ++i) {
    fixture.CdiJson("nic" + std::to_string(i) + ".json", "vendor" + std::to_string(i) + ".com/nic");
    fixture.Write("/etc/cdi/broken" + std::to_string(i) + ".json", "nvidia.com/gpu");
  }
  fixture.CdiJson("z.json", "nvidia.com/gpu");
  EXPECT_THAT(LoadCdiSpecs(fixture.host()).kinds, SizeIs(301));
  ArgsOf(fixture, "nvidia");
  EXPECT_THAT(fixture.warnings, SizeIs(4));
  EXPECT_THAT(fixture.warnings.back(), HasSubstr("297 more"));
}

TEST(Cdi, TheSpecsThatPodmanListsAreTheOnesThatCount) {
  FixtureHost fixture;
  fixture.Write("/opt/cdi/nvidia.yaml", "kind: nvidia.com/gpu\ndevices: [{name: all}]\n");
  fixture.CdiJson("amd.json", "amd.com/gpu");  // which this podman does not look at
  fixture.PodmanScript(
      "[ \"$*\" = \"info --format {{json .Host.CDISpecs}}\" ] && echo '[\"/opt/cdi/nvidia.yaml\", "
      "\"/opt/cdi/none.json\", \"/opt/cdi/odd.txt\"]'\n");
  const CdiSpecs cdi = LoadCdiSpecs(fixture.host());
  EXPECT_NE(cdi.Usable(GpuVendor::kNvidia), nullptr);
  EXPECT_EQ(cdi.Declared(GpuVendor::kAmd), nullptr);
  EXPECT_EQ(cdi.looked_in, "the specs that podman lists");
  EXPECT_THAT(cdi.skipped, SizeIs(2));
}

class CdiFallback : public ::testing::TestWithParam<const char*> {};

TEST_P(CdiFallback, ReadsTheDirectories) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  fixture.PodmanScript(GetParam());
  EXPECT_NE(LoadCdiSpecs(fixture.host()).Usable(GpuVendor::kNvidia), nullptr);
}

INSTANTIATE_TEST_SUITE_P(PodmanFailsOrListsNothing, CdiFallback,
                         ::testing::Values("echo '[]'", "echo null", "exit 125", "echo '[\"/etc'",
                                           "echo 'not json'", "echo '{\"a\": 1}'", "echo '[1, 2]'",
                                           "true", "kill -9 $$", "yes '[\"/etc/cdi/nvidia.json\",'",
                                           "printf '\\377\\376'"));

TEST(Cdi, AHangingPodmanIsGivenUp) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  fixture.PodmanScript("sleep 600 & sleep 600\n");
  Host host = fixture.host();
  host.podman.answer_limit = std::chrono::milliseconds(200);
  EXPECT_NE(LoadCdiSpecs(host).Usable(GpuVendor::kNvidia), nullptr);
}

TEST(Cdi, APodmanThatIsNoProgramCountsAsMissing) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  Host host = fixture.host();
  host.podman.program = "/dev/null";
  EXPECT_NE(LoadCdiSpecs(host).Usable(GpuVendor::kNvidia), nullptr);
}

TEST(Cdi, APodmanBefore41GetsTheRawRecipe) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  fixture.RenderNode("renderD128", "0000:03:00.0", kAmdId);
  fixture.Node("/dev/kfd");
  fixture.PodmanScript(Answers("exit 125", "3.4.4"));
  EXPECT_THAT(ArgsOf(fixture, "amd"),
              ElementsAre("--device", "/dev/kfd", "--device", "/dev/dri/renderD128", "--group-add",
                          "keep-groups"));
  EXPECT_THAT(ErrorOf(fixture, "intel"), HasSubstr("no CDI spec declares intel.com/gpu"));
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  EXPECT_THAT(ErrorOf(fixture, "nvidia"),
              HasSubstr("podman 3.4 is older than 4.1 and knows no CDI"));
  EXPECT_TRUE(check_gpu_available(fixture.host()));  // it is declared, whoever reads it
}

TEST(Cdi, APodmanFrom41OnGetsCdi) {
  for (const char* version : {"4.1.0", "4.3.1", "5.6.0-dev", "10.0"}) {
    FixtureHost fixture;
    fixture.CdiJson("amd.json", "amd.com/gpu");
    fixture.PodmanScript(Answers("exit 125", version));
    EXPECT_NE(LoadCdiSpecs(fixture.host()).Usable(GpuVendor::kAmd), nullptr) << version;
  }
}

TEST(Cdi, GlobalOptionsPrecedePodmansCommand) {
  FixtureHost fixture;
  fixture.PodmanScript(
      "[ \"$1 $2 $3\" = '--root=/x --log-level=error info' ] && echo '[\"/x.json\"]'\n");
  Host host = fixture.host();
  host.podman.global_options = {"--root=/x", "--log-level=error"};
  EXPECT_EQ(LoadCdiSpecs(host).looked_in, "the specs that podman lists");
}

// containers.conf.

constexpr char kConf[] = "/etc/containers/containers.conf";

TEST(Cdi, ContainersConfNamesTheDirectories) {
  FixtureHost fixture;
  fixture.Write(kConf,
                "[containers]\ncdi_spec_dirs = ['/no']\n[engine] # x\ncdi_spec_dirs = [\n"
                "  \"/opt/a\", # one\n  '/opt/b',\n]\n");
  fixture.Write("/opt/b/n.json", R"({"kind": "nvidia.com/gpu"})");
  fixture.CdiJson("amd.json", "amd.com/gpu");
  const CdiSpecs cdi = LoadCdiSpecs(fixture.host());
  EXPECT_EQ(cdi.looked_in, "/opt/a, /opt/b");
  EXPECT_NE(cdi.Declared(GpuVendor::kNvidia), nullptr);
  EXPECT_EQ(cdi.Declared(GpuVendor::kAmd), nullptr);
}

TEST(Cdi, LaterContainersConfFilesReplaceOrAppend) {
  FixtureHost fixture;
  fixture.Write("/usr/share/containers/containers.conf", "engine.cdi_spec_dirs = ['/usr/cdi']\n");
  fixture.Write(kConf, "[engine]\ncdi_spec_dirs = ['/a']\n");
  fixture.Write("/etc/containers/containers.conf.d/10-x.conf",
                "[engine]\ncdi_spec_dirs = ['/b', {append=true}]\n");
  fixture.Write("/etc/containers/containers.conf.d/20-x.conf", "not [ toml cdi_spec_dirs");
  fixture.Write("/etc/containers/containers.conf.d/30-x", "[engine]\ncdi_spec_dirs = ['/c']\n");
  EXPECT_EQ(LoadCdiSpecs(fixture.host()).looked_in, "/a, /b");
  fixture.Write("/over.conf", "[engine]\ncdi_spec_dirs = []\n");
  setenv("CONTAINERS_CONF_OVERRIDE", "/over.conf", 1);
  EXPECT_EQ(LoadCdiSpecs(fixture.host()).looked_in, "no directory (cdi_spec_dirs is empty)");
  unsetenv("CONTAINERS_CONF_OVERRIDE");
  setenv("CONTAINERS_CONF", kConf, 1);
  EXPECT_EQ(LoadCdiSpecs(fixture.host()).looked_in, "/a");
  unsetenv("CONTAINERS_CONF");
}

TEST(Cdi, APodmanThatKnowsNoSpecDirsDoesNotFollowThem) {
  FixtureHost fixture;
  fixture.Write(kConf, "[engine]\ncdi_spec_dirs = ['/a']\n");
  fixture.PodmanScript(Answers("exit 125", "4.3.1"));
  EXPECT_EQ(LoadCdiSpecs(fixture.host()).looked_in, "/etc/cdi, /var/run/cdi");
  fixture.PodmanScript(Answers("exit 125", "5.2.0"));
  EXPECT_EQ(LoadCdiSpecs(fixture.host()).looked_in, "/a");
}

}  // namespace
}  // namespace smolvm::gpu
