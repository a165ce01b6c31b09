// `smolvm gpu` as a whole: what it prints where, and its exit status.
#include "container/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "container/actions.h"
#include "tests/unit/container/fixture.h"

namespace smolvm::gpu {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

Outcome Smolvm(std::vector<std::string> words) {
  words.insert(words.begin(), "gpu");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.status = RunCommand(static_cast<int>(words.size()), argv.data());
  outcome.out = testing::internal::GetCapturedStdout();
  outcome.err = testing::internal::GetCapturedStderr();
  return outcome;
}

// The same on a made-up host; `words` begins with the subcommand.
Outcome Smolvm(FixtureHost& fixture, std::vector<std::string> words) {
  const Host host = fixture.host();
  const Words where = {"--root", host.root.directory(), "--podman", host.podman.program};
  words.insert(words.begin() + 1, where.begin(), where.end());
  return Smolvm(std::move(words));
}

constexpr char kErrorLine[] = "--smolvm-gpu-error\n";

TEST(RunArgs, PrintsOneLineForTheShell) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  const Outcome outcome = Smolvm(fixture, {"run-args", "amd"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "--device amd.com/gpu=all --group-add keep-groups\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(RunArgs, PrintsLinesAndJson) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  EXPECT_EQ(Smolvm(fixture, {"run-args", "amd:0", "--format", "lines"}).out,
            "--device\namd.com/gpu=0\n--group-add\nkeep-groups\n");
  EXPECT_EQ(Smolvm(fixture, {"run-args", "amd:0", "--format=json"}).out,
            R"(["--device","amd.com/gpu=0","--group-add","keep-groups"])"
            "\n");
  EXPECT_EQ(Smolvm(fixture, {"run-args", "", "--format=json"}).out, "[]\n");
}

TEST(RunArgs, SeveralWordsAreOneSelector) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  EXPECT_EQ(Smolvm(fixture, {"run-args", "amd:1", "nvidia,amd:0"}).out,
            Smolvm(fixture, {"run-args", "nvidia,amd:0,amd:1"}).out);
}

TEST(RunArgs, AnEmptySelectorIsNoGpu) {
  FixtureHost fixture;
  const Outcome outcome = Smolvm(fixture, {"run-args", ""});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out + outcome.err, "");
}

TEST(RunArgs, WarningsAreOnStderr) {
  FixtureHost fixture;
  fixture.RenderNode("renderD128", "0000:03:00.0", kIntelId);
  const Outcome outcome = Smolvm(fixture, {"run-args", "intel:0"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out, "--device /dev/dri/renderD128 --group-add keep-groups\n");
  EXPECT_THAT(outcome.err, HasSubstr("smolvm gpu: warning: without CDI"));
}

TEST(RunArgs, EveryFailurePrintsTheOneWord) {
  FixtureHost fixture;
  const std::vector<Words> failures = {
      {"run-args", "all"},
      {"run-args", "nvidia:x"},
      {"run-args", "amd,matrox"},
      {"run-args"},
      {"run-args", "--frob"},
      {"run-args", "all", "--format", "xml"},
      {"run-args", "all", "--format"},
      {"run-args", "--remote"},
      {"run-args", "--remote", "amd"},
      {"run-args", "all", "--", "x"},
  };
  for (const Words& words : failures) {
    const Outcome outcome = Smolvm(fixture, words);
    EXPECT_EQ(outcome.status, 125) << outcome.err;
    EXPECT_EQ(outcome.out, kErrorLine);
    EXPECT_THAT(outcome.err, HasSubstr("smolvm gpu: "));
  }
  EXPECT_EQ(Smolvm(fixture, {"run-args", "all", "--format", "json"}).out, kErrorLine);
}

TEST(RunArgs, RejectionsNameTheTokenAndTheHint) {
  FixtureHost fixture;
  EXPECT_THAT(Smolvm(fixture, {"run-args", "nvidia:x"}).err,
              AllOf(HasSubstr("'nvidia:x'"), HasSubstr("accepted are")));
  EXPECT_THAT(Smolvm(fixture, {"run-args", "all", "--format", "xml"}).err, HasSubstr("xml not in"));
  EXPECT_THAT(Smolvm({"detect", "--root", "/no/such/root"}).err, HasSubstr("/no/such/root"));
  EXPECT_THAT(Smolvm(fixture, {"run-args", "amd"}).err,
              AllOf(HasSubstr("/dev/kfd"), HasSubstr("modprobe amdgpu")));
}

TEST(RunArgs, WhatTheShellWouldChangeIsRefused) {
  FixtureHost fixture;
  fixture.NvidiaNodes({0});
  fixture.Node("/dev/nvidia-odd name*");
  const Outcome shell = Smolvm(fixture, {"run-args", "nvidia"});
  EXPECT_EQ(shell.out, kErrorLine);
  EXPECT_THAT(shell.err, HasSubstr("'/dev/nvidia-odd name*'"));
  EXPECT_THAT(Smolvm(fixture, {"run-args", "nvidia", "--format", "lines"}).out,
              HasSubstr("\n/dev/nvidia-odd name*\n"));
}

TEST(RunArgs, FormatsThemselvesRefuseWhatTheyCannotCarry) {
  EXPECT_THROW(FormatArgs({"a b"}, ArgsFormat::kShell), GpuConfigError);
  EXPECT_THROW(FormatArgs({""}, ArgsFormat::kShell), GpuConfigError);
  EXPECT_THROW(FormatArgs({"a\nb"}, ArgsFormat::kLines), GpuConfigError);
  EXPECT_THROW(FormatArgs({"\xff"}, ArgsFormat::kJson), GpuConfigError);
  for (char c : std::string("*?[]{}~'\"\\$`!#&;|<>()^\t\r")) {
    EXPECT_THROW(FormatArgs({std::string("a") + c}, ArgsFormat::kShell), GpuConfigError) << c;
  }
}

TEST(Detect, PrintsATable) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  fixture.NvidiaCard("0000:41:00.0", 0);
  fixture.RenderNode("renderD128", "0000:03:00.0", kIntelId);
  fixture.RenderNode("renderD129", "0000:04:00.0", kIntelId);
  const Outcome outcome = Smolvm(fixture, {"detect"});
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.out,
            "VENDOR  MECHANISM  DEVICES\n"
            "nvidia  cdi        nvidia.com/gpu in /etc/cdi/nvidia.json; on the PCI bus "
            "0=0000:41:00.0\n"
            "intel   raw        0=0000:03:00.0, 1=0000:04:00.0\n");
}

TEST(Detect, PrintsJson) {
  FixtureHost fixture;
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu", {"all"});
  fixture.RenderNode("renderD128", "0000:03:00.0", kIntelId);
  EXPECT_EQ(nlohmann::json::parse(Smolvm(fixture, {"detect", "--json"}).out),
            nlohmann::json::parse(R"({"vendors": [
              {"vendor": "nvidia", "mechanism": "cdi", "addresses": [],
               "cdi": {"kind": "nvidia.com/gpu", "files": ["/etc/cdi/nvidia.json"],
                       "devices": ["all"]}},
              {"vendor": "intel", "mechanism": "raw", "addresses": ["0000:03:00.0"]}]})"));
}

TEST(Detect, ABareHostIsNoFailure) {
  FixtureHost fixture;
  EXPECT_EQ(Smolvm(fixture, {"detect"}).out, "no GPU that can be passed to a container\n");
  EXPECT_EQ(nlohmann::json::parse(Smolvm(fixture, {"detect", "--json"}).out),
            nlohmann::json::parse(R"({"vendors": []})"));
}

TEST(Check, AnswersByItsStatus) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  EXPECT_EQ(Smolvm(fixture, {"check"}).status, 1);
  fixture.CdiJson("nvidia.json", "nvidia.com/gpu");
  EXPECT_EQ(Smolvm(fixture, {"check"}).status, 0);
}

// Runs `explain` with this text on stdin.
Outcome Explain(FixtureHost& fixture, const std::string& text) {
  const std::string file = fixture.Real("/stdin");
  std::ofstream(file, std::ios::binary) << text;
  EXPECT_NE(std::freopen(file.c_str(), "r", stdin), nullptr);
  return Smolvm(fixture, {"explain"});
}

TEST(Explain, PrintsTheHintThatFits) {
  FixtureHost fixture;
  const Outcome fits = Explain(fixture, std::string(100000, '.') + "unresolvable CDI devices");
  EXPECT_EQ(fits.status, 0);
  EXPECT_EQ(fits.out, std::string(kCdiHint) + "\n");
  const Outcome none = Explain(fixture, "Error: no such image\xff");
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.out, "");
}

TEST(Explain, SaysWhatTheSpecsSay) {
  FixtureHost fixture;
  fixture.Write("/etc/cdi/amd.yaml",
                "cdiVersion: 0.6.0\nkind: amd.com/gpu\nannotations: {a: b}\ndevices:\n- name: '0'\n"
                "  containerEdits: {env: [A=1], additionalGids: [44]}\n");
  const auto explain = [&](const std::string& text) { return Explain(fixture, text).out; };
  EXPECT_THAT(
      explain("Error: setting up CDI devices: unresolvable CDI devices amd.com/gpu=0\n"),
      AllOf(HasSubstr("the CDI spec /etc/cdi/amd.yaml (cdiVersion 0.6.0) has fields that CDI "
                      "0.5.0 lacks: annotations, additionalGids"),
            EndsWith(std::string(kCdiHint) + "\n")));
  EXPECT_THAT(explain("Error: unresolvable CDI devices amd.com/gpu=1, intel.com/gpu=all."),
              AllOf(HasSubstr("the CDI specs declare no device amd.com/gpu=1; they declare 0"),
                    HasSubstr("no CDI spec declares intel.com/gpu (looked in /etc/cdi, ")));
  // A path that only a spec tells to be a GPU's.
  fixture.Write("/etc/cdi/intel.yaml",
                "cdiVersion: 0.5.0\nkind: intel.com/gpu\ndevices:\n- name: '0'\n  containerEdits:\n"
                "    mounts: [{hostPath: /srv/neo.so, containerPath: /neo.so}]\n");
  const std::string gone =
      "Error: crun: cannot stat `/srv/neo.so`: No such file or directory: OCI "
      "runtime error\n";
  EXPECT_THAT(explain(gone), AllOf(HasSubstr("the CDI spec /etc/cdi/intel.yaml is stale: for "
                                             "intel.com/gpu=0 it names /srv/neo.so"),
                                   EndsWith(std::string(kStaleHint) + "\n")));
  fixture.Node("/srv/neo.so");
  EXPECT_THAT(explain(gone), HasSubstr("podman's error is about /srv/neo.so, which the CDI spec "
                                       "/etc/cdi/intel.yaml names for intel.com/gpu=0"));
  EXPECT_EQ(explain("Error: crun: cannot stat `/srv/neo.so.2`: No such file or directory\n"), "");
}

TEST(RunPodman, PassesArgumentsAndStatus) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  fixture.PodmanScript("[ $1 = run ] || exit 125\nprintf '%s\\n' \"$@\"\nexit 9\n");
  // What follows -- is podman's, an option of ours or another -- included.
  const std::string podman = fixture.host().podman.program;
  const Outcome outcome =
      Smolvm(fixture, {"run", "amd", "--", "--rm", "-e", "A=b c", "image", "--", "--root", ""});
  EXPECT_EQ(outcome.status, 9);
  EXPECT_EQ(outcome.out,
            "run\n--device\namd.com/gpu=all\n--group-add\nkeep-groups\n--rm\n-e\nA=b "
            "c\nimage\n--\n--root\n\n");
  EXPECT_EQ(outcome.err, "");
}

TEST(RunPodman, GivesPodmanItsGlobalOptions) {
  FixtureHost fixture;
  fixture.PodmanScript("printf '%s ' \"$@\"\n");
  EXPECT_EQ(Smolvm(fixture, {"run", "", "--podman-option=--root=/s", "--podman-option", "--x", "--",
                             "image"})
                .out,
            "--root=/s --x run image ");
}

TEST(RunPodman, ExplainsAGpuFailure) {
  FixtureHost fixture;
  fixture.CdiJson("amd.json", "amd.com/gpu");
  fixture.PodmanScript(
      "[ $1 = run ] || exit 125\necho 'Error: unresolvable CDI devices amd.com/gpu=all' >&2\n"
      "exit 126\n");
  const Outcome outcome = Smolvm(fixture, {"run", "amd", "--", "image"});
  EXPECT_EQ(outcome.status, 126);
  EXPECT_THAT(
      outcome.err,
      AllOf(HasSubstr("Error: unresolvable CDI devices amd.com/gpu=all\n\nsmolvm gpu: "),
            HasSubstr("\npodman was given: --device amd.com/gpu=all --group-add keep-groups\n"),
            EndsWith(std::string(kCdiHint) + "\n")));
}

// podman says only that a device is unresolvable; what was passed and what the spec says tells why.
TEST(RunPodman, ExplainsByWhatWasPassed) {
  FixtureHost fixture;
  fixture.Write(
      "/etc/cdi/nvidia.yaml",
      "cdiVersion: 1.1.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n"
      "    netDevices: [{hostInterfaceName: eth0}]\n");
  fixture.PodmanScript(
      "[ $1 = run ] || exit 125\necho 'Error: setting up CDI devices: unresolvable' >&2\nexit "
      "126\n");
  const Outcome outcome = Smolvm(fixture, {"run", "nvidia", "--", "image"});
  EXPECT_THAT(
      outcome.err,
      AllOf(HasSubstr("the CDI spec /etc/cdi/nvidia.yaml (cdiVersion 1.1.0) has fields that "
                      "CDI 0.5.0 lacks: netDevices"),
            HasSubstr("podman was given: --device nvidia.com/gpu=all ")));
}

TEST(RunPodman, ExplainsNothingElse) {
  FixtureHost fixture;
  fixture.PodmanScript("echo 'a program that talks of CDI' >&2\nexit 1\n");
  EXPECT_EQ(Smolvm(fixture, {"run", "", "--", "image"}).err, "a program that talks of CDI\n");
  fixture.PodmanScript("echo 'Error: no such image' >&2\nexit 125\n");
  EXPECT_EQ(Smolvm(fixture, {"run", "", "--", "image"}).err, "Error: no such image\n");
}

TEST(RunPodman, ASelectorThatCannotBeServedFailsBeforePodman) {
  FixtureHost fixture;
  fixture.PodmanScript("[ $1 = run ] && touch \"$0.ran\"\nexit 125\n");
  for (const char* selector : {"all", "nvidia:0", "nvidia:x"}) {
    EXPECT_EQ(Smolvm(fixture, {"run", selector, "--", "image"}).status, 125);
  }
  EXPECT_FALSE(std::filesystem::exists(fixture.host().podman.program + ".ran"));
}

TEST(RunPodman, MissingPiecesAreNamed) {
  FixtureHost fixture;
  EXPECT_THAT(Smolvm(fixture, {"run", "all"}).err, HasSubstr("podman's arguments are missing"));
  EXPECT_THAT(Smolvm(fixture, {"run", "--", "image"}).err, HasSubstr("SELECTOR is required"));
  const Outcome outcome = Smolvm(fixture, {"run", "", "--", "image"});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot run"), HasSubstr("no-podman")));
}

TEST(CdiSpecCommand, NeedsADaemon) {
  FixtureHost fixture;
  fixture.Write("/opt/smolvm-cuda/libcuda.so.1", "");
  const Outcome outcome = Smolvm(fixture, {"cdi-spec"});
  EXPECT_EQ(outcome.status, 125);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("no daemon to use"), HasSubstr("--listen unix:PATH")));
  EXPECT_THAT(Smolvm(fixture, {"cdi-spec", ""}).err, HasSubstr("of no use"));
}

TEST(Help, IsPrintedForEveryCommand) {
  for (const char* command : {"detect", "run-args", "check", "explain", "run", "cdi-spec"}) {
    const Outcome outcome = Smolvm({command, "--help"});
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.out, HasSubstr("smolvm gpu")) << command;
    EXPECT_EQ(outcome.err, "");
  }
  EXPECT_THAT(Smolvm({"--help"}).out, AllOf(HasSubstr("SELECTOR"), HasSubstr("EXIT STATUS")));
}

TEST(Help, AnUnknownCommandIsNamed) {
  EXPECT_THAT(Smolvm({"bogus"}).err,
              AllOf(HasSubstr("smolvm gpu: 'bogus' is not a command"), HasSubstr("run-args")));
  EXPECT_THAT(Smolvm({"--bogus"}).err, HasSubstr("--bogus"));
}

TEST(Help, WrongCommandsFailOnStderr) {
  for (const Words& words : {Words{}, Words{"frob"}, Words{"detect", "--frob"}, Words{"check", "x"},
                             Words{"detect", "--", "x"}}) {
    const Outcome outcome = Smolvm(words);
    EXPECT_EQ(outcome.status, 125);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, Not(IsEmpty()));
  }
}

}  // namespace
}  // namespace smolvm::gpu
