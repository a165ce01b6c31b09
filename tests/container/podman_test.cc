// What a container really sees when podman starts it with the generated arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "container/error.h"
#include "tests/container/sandbox.h"

namespace smolvm::gpu {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Lines = std::vector<std::string>;

// The device nodes and links, the environment and the mounts that a container has.
constexpr char kLook[] =
    "find /dev -type c -o -type l -o -type b | grep -v /dev/pts/; env | grep -v HOSTNAME=; "
    "grep -o ' /dev/dri/by-path[^ ]* r[wo]' /proc/self/mountinfo; true";

// A host with every vendor's GPUs, none of them in a CDI spec, and a BMC's display device.
void MakeGpus(const Sandbox& sandbox) {
  static bool made = false;
  if (made) return;
  made = true;
  const struct {
    const char* path;
    unsigned major, minor;
  } kNodes[] = {{"nvidiactl", 195, 255}, {"nvidia0", 195, 0},
                {"nvidia1", 195, 1},     {"nvidia-uvm", 510, 0},
                {"kfd", 511, 0},         {"dri/card0", 226, 0},
                {"dri/card1", 226, 1},   {"nvidia-caps/nvidia-cap1", 237, 1}};
  for (const auto& node : kNodes) sandbox.MakeDevice(node.path, node.major, node.minor);
  for (int minor : {0, 1}) {
    sandbox.Write(sandbox.host_root() + "/proc/driver/nvidia/gpus/0000:" +
                      (minor == 0 ? "c1" : "41") + ":00.0/information",
                  "Device Minor: \t " + std::to_string(minor) + "\n");
  }
  sandbox.RenderNode(128, "0000:83:00.0", "0x1002");
  sandbox.RenderNode(129, "0000:03:00.0", "0x1002");
  sandbox.RenderNode(130, "0000:00:02.0", "0x8086");
  sandbox.RenderNode(131, "0000:41:00.0", "0x10de");
  sandbox.RenderNode(132, "0000:05:00.0", "0x1a03");
}

class PodmanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    sandbox_ = Sandbox::Get(why);
    if (sandbox_ == nullptr) GTEST_SKIP() << "no containers here: " << why;
    MakeGpus(*sandbox_);
    std::filesystem::remove_all("/etc/cdi");
    std::filesystem::create_directory("/etc/cdi");
  }

  std::string Podman(const std::string& runtime = "runc") const {
    return sandbox_->podman(runtime);
  }
  // smolvm gpu …, on the made-up host.
  std::string Gpu(const std::string& words) const {
    const std::string command = words.substr(0, words.find(' '));
    return std::string(SMOLVM_PROGRAM) + " gpu " + command + " --root " + sandbox_->host_root() +
           " --podman " + Podman() + words.substr(command.size());
  }
  // What a container sees with podman's options `options`, beyond what it sees without.
  Lines Sees(const std::string& options) const {
    const std::string after =
        " " + Sandbox::RunOptions() + " " + Sandbox::Image() + " sh -c \"$LOOK\"";
    const Lines variables = {std::string("LOOK=") + kLook};
    static const Captured plain = Shell(Podman() + " run" + after, variables);
    EXPECT_EQ(plain.status, 0) << plain.err;
    const Captured with = Shell(Podman() + " run " + options + after, variables);
    EXPECT_EQ(with.status, 0) << with.err;
    EXPECT_THAT(Added(SortedLines(with.out), SortedLines(plain.out)), IsEmpty());
    return Added(SortedLines(plain.out), SortedLines(with.out));
  }
  void WriteCdi(const std::string& kind, const std::string& device, const std::string& edits) {
    sandbox_->Write("/etc/cdi/" + kind.substr(0, kind.find('.')) + ".json",
                    R"({"cdiVersion": "0.5.0", "kind": ")" + kind + R"(", "devices": [{"name": ")" +
                        device + R"(", "containerEdits": )" + edits + "}]}");
  }
  // As WriteCdi, in the made-up host's /etc/cdi as well.
  void WriteCdiEverywhere(const std::string& kind, const std::string& device,
                          const std::string& edits) {
    WriteCdi(kind, device, edits);
    const std::filesystem::path etc = sandbox_->host_root() + "/etc";
    std::filesystem::create_directories(etc);
    std::filesystem::remove_all(etc / "cdi");
    std::filesystem::copy("/etc/cdi", etc / "cdi");
  }
  void TearDown() override {
    if (sandbox_ != nullptr) std::filesystem::remove_all(sandbox_->host_root() + "/etc/cdi");
  }

  Sandbox* sandbox_ = nullptr;
};

std::string LinkNode(const std::string& address) {
  return "/dev/dri/by-path/pci-" + address + "-render";
}

TEST_F(PodmanTest, AllRawGpusAndNothingElse) {
  const Lines sees = Sees("$(" + Gpu("run-args all") + ")");
  for (const std::string& line :
       {std::string("/dev/nvidia0"), std::string("/dev/nvidia1"), std::string("/dev/nvidia-uvm"),
        std::string("/dev/nvidiactl"), std::string("/dev/nvidia-caps/nvidia-cap1"),
        std::string("/dev/kfd"), std::string("/dev/dri/renderD128"),
        std::string("/dev/dri/renderD129"), std::string("/dev/dri/renderD130"),
        std::string("NVIDIA_VISIBLE_DEVICES=all"), std::string("NVIDIA_DRIVER_CAPABILITIES=all"),
        LinkNode("0000:83:00.0"), LinkNode("0000:03:00.0"), LinkNode("0000:00:02.0"),
        " " + LinkNode("0000:83:00.0") + " ro", " " + LinkNode("0000:03:00.0") + " ro",
        " " + LinkNode("0000:00:02.0") + " ro"}) {
    EXPECT_THAT(sees, Contains(line));
  }
  // Those 14 nodes and variables, and the three mounts.
  EXPECT_EQ(sees.size(), 17u) << ::testing::PrintToString(sees);
}

TEST_F(PodmanTest, OneAmdCardIsItsNodeItsReadOnlyLinkAndKfd) {
  const Lines sees = Sees("$(" + Gpu("run-args amd:0") + ")");
  EXPECT_THAT(sees, ::testing::UnorderedElementsAre("/dev/kfd", "/dev/dri/renderD129",
                                                    LinkNode("0000:03:00.0"),
                                                    " " + LinkNode("0000:03:00.0") + " ro"));
}

TEST_F(PodmanTest, OneNvidiaCardIsByItsMinorWithTheSharedNodes) {
  const Lines sees = Sees("$(" + Gpu("run-args nvidia:0") + ")");  // 0000:41:00.0, minor 1
  EXPECT_THAT(
      sees, ::testing::UnorderedElementsAre(
                "/dev/nvidia1", "/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap1",
                "NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=all"));
}

TEST_F(PodmanTest, CdiInjectsWhatTheSpecSays) {
  WriteCdiEverywhere("nvidia.com/gpu", "0",
                     R"({"env": ["FROM_CDI=yes"], "deviceNodes": [{"path": "/dev/nvidia0"}]})");
  const Lines sees = Sees("$(" + Gpu("run-args nvidia:0") + ")");
  EXPECT_THAT(sees, ::testing::UnorderedElementsAre("/dev/nvidia0", "FROM_CDI=yes",
                                                    "NVIDIA_VISIBLE_DEVICES=0",
                                                    "NVIDIA_DRIVER_CAPABILITIES=all"));
}

TEST_F(PodmanTest, AFailureOfRunArgsStopsPodman) {
  const Captured run = Shell(Podman() + " run $(" + Gpu("run-args nvidia:7") + ") " +
                             Sandbox::RunOptions() + " " + Sandbox::Image() + " echo ran");
  EXPECT_EQ(run.status, 125);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr("nvidia:7 is out of range"),
                             HasSubstr("unknown flag: --smolvm-gpu-error")));
}

TEST_F(PodmanTest, RunPassesStatusAndOutputOn) {
  const Captured run = Shell(Gpu("run amd:1") + " -- " + Sandbox::RunOptions() + " " +
                             Sandbox::Image() + " sh -c 'ls /dev/dri; echo err >&2; exit 7'");
  EXPECT_EQ(run.status, 7);
  EXPECT_EQ(run.out, "by-path\nrenderD128\n");
  EXPECT_THAT(run.err, AllOf(HasSubstr("best effort"), EndsWith("err\n"), Not(HasSubstr("CDI n"))));
}

TEST_F(PodmanTest, AWrongCdiNameIsExplained) {
  WriteCdi("nvidia.com/gpu", "0", R"({"env": ["A=b"]})");
  const std::string rest =
      " --device nvidia.com/gpu=7 " + Sandbox::RunOptions() + " " + Sandbox::Image() + " echo ran";
  const Captured run = Shell(Gpu("run ''") + " --" + rest);
  EXPECT_NE(run.status, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr("Error: "), HasSubstr("nvidia.com/gpu=7"),
                             EndsWith(std::string(kCdiHint) + "\n")));
  const Captured explained =
      Shell(Podman() + " run" + rest + " 2>&1 >/dev/null | " SMOLVM_PROGRAM " gpu explain");
  EXPECT_EQ(explained.status, 0) << explained.err;
  EXPECT_THAT(explained.out, AllOf(HasSubstr("declare no device nvidia.com/gpu=7; they declare 0"),
                                   EndsWith(std::string(kCdiHint) + "\n")));
}

TEST_F(PodmanTest, ASpecThatPodmanRefusesIsExplained) {
  WriteCdiEverywhere("amd.com/gpu", "all", R"({"env": ["not an assignment"]})");
  const Captured run =
      Shell(Gpu("run amd") + " -- " + Sandbox::RunOptions() + " " + Sandbox::Image() + " echo ran");
  EXPECT_NE(run.status, 0);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, EndsWith(std::string(kCdiHint) + "\n"));
}

// What podman does with the specs that are refused here before it is asked, and explained.
TEST_F(PodmanTest, PodmanRefusesWhatIsRefusedHere) {
  const std::string rest = " " + Sandbox::RunOptions() + " " + Sandbox::Image() + " echo ran";
  const auto both = [&](const std::string& words) {
    const Captured podman = Shell(Podman() + " run --device nvidia.com/gpu=0" + rest);
    EXPECT_NE(podman.status, 0) << podman.out;
    std::filesystem::remove_all(sandbox_->host_root() + "/etc/cdi");
    std::filesystem::copy("/etc/cdi", sandbox_->host_root() + "/etc/cdi");
    const Captured refused = Shell(Gpu("run-args nvidia:0"));
    EXPECT_EQ(refused.status, 125);
    EXPECT_THAT(refused.err, HasSubstr(words)) << podman.err;
  };
  std::filesystem::create_directories(sandbox_->host_root() + "/etc");
  WriteCdi("nvidia.com/gpu", "0", R"({"mounts": [{"hostPath": "/lib/libEGL_nvidia.so.1",
                                                  "containerPath": "/x", "options": ["bind"]}]})");
  both("/lib/libEGL_nvidia.so.1, which this host does not have");
  WriteCdi("nvidia.com/gpu", "0", R"({"env": ["A=b"]})");
  std::filesystem::copy("/etc/cdi/nvidia.json", "/etc/cdi/other.json");
  both("more than one CDI spec of a folder");
  std::filesystem::remove("/etc/cdi/other.json");
  sandbox_->Write("/etc/cdi/nvidia.json",
                  R"({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": []})");
  both("declare no device at all");
}

TEST_F(PodmanTest, AFieldThatPodmanDoesNotKnowIsExplained) {
  WriteCdiEverywhere("nvidia.com/gpu", "0", R"({"env": ["A=b"], "additionalGids": [44]})");
  const Captured run = Shell(Gpu("run nvidia:0") + " -- " + Sandbox::RunOptions() + " " +
                             Sandbox::Image() + " echo ran");
  if (run.status == 0) GTEST_SKIP() << "skipped: this podman knows the field";
  EXPECT_THAT(run.err, AllOf(HasSubstr("has fields that CDI 0.5.0 lacks: additionalGids"),
                             HasSubstr("podman was given: --device nvidia.com/gpu=0")));
}

TEST_F(PodmanTest, AKeepGroupsFailureIsExplained) {
  const Captured run = Shell(Gpu("run amd:0") + " -- --group-add 44 " + Sandbox::RunOptions() +
                             " " + Sandbox::Image() + " echo ran");
  EXPECT_EQ(run.status, 125);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, AllOf(HasSubstr("Error: the '--group-add keep-groups' option"),
                             EndsWith(std::string(kKeepGroupsHint) + "\n")));
}

TEST_F(PodmanTest, CrunKeepsTheCallersGroups) {
  if (Shell("command -v crun && command -v setpriv").status != 0) {
    GTEST_SKIP() << "crun or setpriv is not installed";
  }
  const std::string after = " run $(" + Gpu("run-args amd") + ") " + Sandbox::RunOptions() + " " +
                            Sandbox::Image() + " id -G";
  const Captured kept = Shell("setpriv --groups 44,105 " + Podman("crun") + after);
  EXPECT_EQ(kept.status, 0) << kept.err;
  EXPECT_EQ(kept.out, "0 44 105\n");
  // runc drops them without a word, which is why the documentation asks for crun.
  const Captured dropped = Shell("setpriv --groups 44,105 " + Podman("runc") + after);
  EXPECT_EQ(dropped.out, "0\n") << dropped.err;
}

// Remoting, as far as no daemon is needed: what the container is given.
class RemoteTest : public PodmanTest {
 protected:
  void SetUp() override {
    PodmanTest::SetUp();
    if (sandbox_ == nullptr) return;
    sandbox_->Write(libraries() + "/libcuda.so.1", "a library\n");
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket().c_str(), sizeof(address.sun_path) - 1);
    std::filesystem::remove(socket());
    listener_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    ASSERT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(listener_, 1), 0);
  }
  void TearDown() override {
    if (listener_ >= 0) close(listener_);
    PodmanTest::TearDown();
  }

  std::string libraries() const { return sandbox_->folder() + "/guest"; }
  std::string socket() const { return sandbox_->folder() + "/daemon.sock"; }
  std::string Where() const { return " --library " + libraries() + " --socket " + socket(); }

  // Looks at everything that remoting hands over, from inside a container with these options.
  void ExpectHandedOver(const std::string& options) const {
    const Captured run =
        Shell(Podman() + " run " + options + " " + Sandbox::RunOptions() + " " + Sandbox::Image() +
              " sh -c 'cat /opt/smolvm-cuda/libcuda.so.1; touch /opt/smolvm-cuda/x 2>&1; "
              "[ -S /run/smolvm-cuda/daemon.sock ] && echo socket; echo $SMOLVM_CUDA_ENDPOINT; "
              "echo $LD_LIBRARY_PATH; echo $CUDA_VISIBLE_DEVICES'");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out,
              "a library\n"
              "touch: /opt/smolvm-cuda/x: Read-only file system\n"
              "socket\n"
              "unix:/run/smolvm-cuda/daemon.sock\n"
              "/opt/smolvm-cuda\n"
              "0,2\n");
  }

  int listener_ = -1;
};

TEST_F(RemoteTest, RunArgsHandLibrariesAndSocketOver) {
  ExpectHandedOver("$(" SMOLVM_PROGRAM " gpu run-args --remote nvidia:2,nvidia:0" + Where() + ")");
}

TEST_F(RemoteTest, TheCdiSpecHandsTheSameOver) {
  const Captured written = Shell(SMOLVM_PROGRAM " gpu cdi-spec nvidia:2,nvidia:0" + Where() +
                                 " -o /etc/cdi/smolvm-cuda.json");
  ASSERT_EQ(written.status, 0) << written.err;
  ASSERT_EQ(Shell("ls /etc/cdi").out, "smolvm-cuda.json\n");
  ExpectHandedOver("--device smolvm.dev/cuda=all");
}

TEST_F(RemoteTest, AFolderThatCannotBeWrittenIsNamed) {
  const Captured written =
      Shell(SMOLVM_PROGRAM " gpu cdi-spec" + Where() + " -o /no/such/folder/x.json");
  EXPECT_EQ(written.status, 125);
  EXPECT_THAT(written.err, HasSubstr("cannot write /no/such/folder/x.json"));
}

}  // namespace
}  // namespace smolvm::gpu
