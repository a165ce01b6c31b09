#include "container/cdi_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace smolvm::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr CdiFormat kBoth[] = {CdiFormat::kJson, CdiFormat::kYaml};

constexpr std::string_view kJson = R"({
  "cdiVersion": "0.5.0",
  "containerEdits": {"env": ["kind=hook"], "hooks": [{"path": "/usr/bin/nvidia-ctk",
      "args": ["nvidia-ctk", "hook", "devices", "name"], "hookName": "createContainer"}]},
  "devices": [
    {"containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "name": "not a device"}]},
     "name": "0"},
    {"name": "all", "annotations": {"name": "neither", "devices": "x"}}
  ],
  "kind": "nvidia.com/gpu"
})";

constexpr std::string_view kYaml = R"(---
# made for nvidia.com/gpu
cdiVersion: 0.5.0
containerEdits:
  env:
  - kind=hook
  hooks:
  - args: [nvidia-ctk, hook, devices, name]
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/dri/renderD128
      name: not a device
  name: "0"
- name: all
  annotations: {name: neither, devices: x}
kind: amd.com/gpu
)";

TEST(CdiSpec, ReadsKindAndDeviceNamesFromJson) {
  const CdiSpecOrError parsed = ParseCdiSpec(kJson, CdiFormat::kJson);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_EQ(parsed.spec->kind, "nvidia.com/gpu");
  EXPECT_THAT(parsed.spec->Names(), ElementsAre("0", "all"));
}

TEST(CdiSpec, ReadsKindAndDeviceNamesFromYaml) {
  const CdiSpecOrError parsed = ParseCdiSpec(kYaml, CdiFormat::kYaml);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_EQ(parsed.spec->kind, "amd.com/gpu");
  EXPECT_THAT(parsed.spec->Names(), ElementsAre("0", "all"));
}

TEST(CdiSpec, AJsonSpecIsAYamlSpecToo) {
  const CdiSpecOrError parsed = ParseCdiSpec(kJson, CdiFormat::kYaml);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_EQ(parsed.spec->kind, "nvidia.com/gpu");
  EXPECT_THAT(parsed.spec->Names(), ElementsAre("0", "all"));
}

TEST(CdiSpec, OnlyTheTopLevelsKindCounts) {
  EXPECT_EQ(ParseCdiSpec("# kind: nvidia.com/gpu\nother: nvidia.com/gpu\n", CdiFormat::kYaml).error,
            "declares no kind");
  EXPECT_EQ(ParseCdiSpec("devices:\n- kind: nvidia.com/gpu\n  name: x\n", CdiFormat::kYaml).error,
            "declares no kind");
  EXPECT_EQ(ParseCdiSpec(R"({"x": {"kind": "nvidia.com/gpu"}, "y": ["kind", "nvidia.com/gpu"]})",
                         CdiFormat::kJson)
                .error,
            "declares no kind");
  EXPECT_EQ(ParseCdiSpec(R"({"kind": ["nvidia.com/gpu"]})", CdiFormat::kJson).error,
            "declares no kind");
  EXPECT_EQ(ParseCdiSpec(R"({"kind": null, "x": "nvidia.com/gpu"})", CdiFormat::kJson).error,
            "declares no kind");
}

TEST(CdiSpec, FollowsAliasesOfScalarsOnly) {
  const CdiSpecOrError parsed = ParseCdiSpec(
      "x: &k intel.com/gpu\nkind: *k\ny: &d {name: shared}\ndevices: [*d, {name: '0'}]\n",
      CdiFormat::kYaml);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_EQ(parsed.spec->kind, "intel.com/gpu");
  EXPECT_THAT(parsed.spec->Names(), ElementsAre("0"));
}

TEST(CdiSpec, ReadsWhatADeviceNeedsOfTheHost) {
  const CdiSpecOrError parsed = ParseCdiSpec(
      R"({"cdiVersion": "0.5.0", "kind": "a/b",
          "devices": [{"containerEdits": {"deviceNodes": [{"path": "/dev/x", "hostPath": "/dev/y"},
                         {"path": "/dev/n", "type": "c", "major": 1, "minor": 3}]}, "name": "0"}],
          "containerEdits": {"hooks": [{"path": "/bin/h", "env": ["path=/none"]}],
                             "mounts": [{"hostPath": "/lib/l", "containerPath": "/c"}]}})",
      CdiFormat::kJson);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_EQ(parsed.spec->version, "0.5.0");
  EXPECT_THAT(parsed.spec->devices[0].needs, ElementsAre("/dev/y"));
  EXPECT_THAT(parsed.spec->needs, ElementsAre("/bin/h", "/lib/l"));
  EXPECT_THAT(parsed.spec->late_fields, IsEmpty());
}

TEST(CdiSpec, NamesFieldsThatOlderReadersRefuse) {
  const CdiSpecOrError parsed = ParseCdiSpec(
      "cdiVersion: 0.7.0\nkind: a/b\nannotations: {kind: x, y: z}\ndevices:\n- name: x\n"
      "  annotations: {}\n  containerEdits:\n    intelRdt: {closID: x}\n    hooks: [{wrong: 1}]\n",
      CdiFormat::kYaml);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_THAT(parsed.spec->late_fields, ElementsAre("annotations", "intelRdt", "wrong"));
}

TEST(CdiSpec, OddShapesAreNotTakenForDevices) {
  const CdiSpecOrError parsed =
      ParseCdiSpec("kind: a/b\ndevices: {name: x}\n? [devices]\n: - name: y\n? {name: z}\n: 1\n",
                   CdiFormat::kYaml);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_THAT(parsed.spec->Names(), IsEmpty());
}

TEST(CdiSpec, BrokenTextIsAnErrorWithItsPlace) {
  EXPECT_THAT(ParseCdiSpec("{\"kind\": ", CdiFormat::kJson).error, HasSubstr("not valid JSON at"));
  EXPECT_THAT(ParseCdiSpec("kind: a/b\n\tdevices: [\n", CdiFormat::kYaml).error,
              HasSubstr("not valid YAML at line 2"));
  EXPECT_THAT(ParseCdiSpec("kind: *none\n", CdiFormat::kYaml).error, HasSubstr("not valid YAML"));
  for (const CdiFormat format : kBoth) {
    EXPECT_FALSE(ParseCdiSpec("", format).spec);
    EXPECT_FALSE(ParseCdiSpec("[]", format).spec);
    EXPECT_FALSE(ParseCdiSpec("\"nvidia.com/gpu\"", format).spec);
    EXPECT_FALSE(ParseCdiSpec("\xff\xfe\x80", format).spec);
    EXPECT_FALSE(ParseCdiSpec(std::string(8, '\0'), format).spec);
  }
}

TEST(CdiSpec, TellsTheFormatByTheExtension) {
  EXPECT_EQ(CdiFormatOf("/etc/cdi/a.json"), CdiFormat::kJson);
  EXPECT_EQ(CdiFormatOf("a.yaml"), CdiFormat::kYaml);
  for (const char* other : {"a.yml", "a.json.bak", "a.yaml~", "README", "a.JSON", ""}) {
    EXPECT_FALSE(CdiFormatOf(other)) << other;
  }
}

// Hostile input.

TEST(CdiSpecHostile, DeepNestingIsRefused) {
  std::string openers[] = {R"({"kind": "a/b", "x": )", ""};
  for (int i = 0; i < 200000; ++i) {
    openers[0] += "[";
    openers[1] += "{\"a\":";
  }
  std::string indented = "kind: a/b\n";
  for (int i = 0; i < 1000; ++i) indented += std::string(i, ' ') + "a:\n";
  EXPECT_EQ(ParseCdiSpec(openers[0], CdiFormat::kJson).error, "nested too deeply");
  EXPECT_EQ(ParseCdiSpec(openers[1], CdiFormat::kJson).error, "nested too deeply");
  EXPECT_FALSE(ParseCdiSpec(openers[0], CdiFormat::kYaml).spec);
  EXPECT_FALSE(ParseCdiSpec(openers[1], CdiFormat::kYaml).spec);
  EXPECT_EQ(ParseCdiSpec(indented, CdiFormat::kYaml).error, "nested too deeply");
}

TEST(CdiSpecHostile, AliasesAreNotMultiplied) {
  // Each line names the one before ten times: expanded, this would be 10^40 nodes.
  std::string bomb = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 40; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 10; ++j) bomb += "*a" + std::to_string(i - 1) + ", ";
    bomb += "]\n";
  }
  const CdiSpecOrError parsed = ParseCdiSpec(bomb + "kind: a/b\ndevices: *a39\n", CdiFormat::kYaml);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_THAT(parsed.spec->Names(), IsEmpty());
}

TEST(CdiSpecHostile, AnAliasToItselfEnds) {
  EXPECT_TRUE(
      ParseCdiSpec("kind: a/b\ndevices: &d [*d, {name: &n x}, {name: *n}]\n", CdiFormat::kYaml)
          .spec);
}

TEST(CdiSpecHostile, HugeTextIsRefused) {
  const std::string huge = "kind: a/b # " + std::string(kLargestCdiSpec, 'x');
  for (const CdiFormat format : kBoth) {
    EXPECT_THAT(ParseCdiSpec(huge, format).error, HasSubstr("larger than"));
  }
}

TEST(CdiSpecHostile, ManyDevicesAreRead) {
  std::string text = R"({"kind": "a/b", "devices": [)";
  for (int i = 0; i < 20000; ++i) text += R"({"name": "d)" + std::to_string(i) + "\"},";
  text.back() = ']';
  const CdiSpecOrError parsed = ParseCdiSpec(text + "}", CdiFormat::kJson);
  ASSERT_TRUE(parsed.spec) << parsed.error;
  EXPECT_EQ(parsed.spec->devices.size(), 20000u);
}

class CdiSpecMutation : public ::testing::TestWithParam<unsigned> {};

// Whatever the bytes, the parser answers: a spec with a kind, or an error.
TEST_P(CdiSpecMutation, EndsWithASpecOrAnError) {
  std::mt19937 random(GetParam());
  constexpr std::string_view kTokens[] = {"\n",  "  ", "- ",   ": ",  "{",  "}",  "[",
                                          "]",   ",",  "*a",   "&a ", "\"", "'",  "? ",
                                          "|\n", ">",  "--- ", "...", "#",  "!x "};
  for (int round = 0; round < 400; ++round) {
    const bool json = random() % 2 == 0;
    std::string text(json ? kJson : kYaml);
    for (unsigned changes = 1 + random() % 8; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          text.insert(at, kTokens[random() % std::size(kTokens)]);
          break;
        case 2:
          text.erase(at, random() % 20);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 40));
      }
      if (text.empty()) text = "x";
    }
    const CdiSpecOrError parsed = ParseCdiSpec(text, json ? CdiFormat::kJson : CdiFormat::kYaml);
    ASSERT_EQ(parsed.spec.has_value(), parsed.error.empty()) << text;
    if (parsed.spec) {
      ASSERT_FALSE(parsed.spec->kind.empty()) << text;
    }
  }
}

TEST_P(CdiSpecMutation, EveryTruncationEnds) {
  const std::string_view text = GetParam() % 2 == 0 ? kJson : kYaml;
  const CdiFormat format = GetParam() % 2 == 0 ? CdiFormat::kJson : CdiFormat::kYaml;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const CdiSpecOrError parsed = ParseCdiSpec(text.substr(0, length), format);
    ASSERT_EQ(parsed.spec.has_value(), parsed.error.empty()) << length;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, CdiSpecMutation, ::testing::Range(1u, 7u));

}  // namespace
}  // namespace smolvm::gpu
