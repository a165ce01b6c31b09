// Machines on every kind of KVM, played by tests/support/fake_qemu.sh: what is emulated is real.
#include <sys/socket.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "machine/guest/kernel.h"
#include "machine/guest/qemu.h"
#include "machine/supervise/message.h"
#include "machine/util/failure.h"
#include "tests/vm/machine_vm_support.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AcceleratorVmTest : public MachineVmTest {
 protected:
  void SetUp() override {
    MachineVmTest::SetUp();
    if (IsSkipped()) return;
    const fs::path kernels = fs::path(SMOLVM_TEST_CACHE) / "smolvm-cuda";
    try {
      EnsureKernel(kernels);
    } catch (const Failure& failure) {
      GTEST_SKIP() << "skipped: " << failure.what();
    }
    // Its own verdicts, but not its own kernel.
    fs::create_directories(cache_ / "smolvm-cuda");
    fs::create_directory_symlink(kernels / "kernels", cache_ / "smolvm-cuda/kernels");
    const fs::path bin = folder_.path() / "bin";
    fs::create_directories(bin);
    fs::create_symlink(SMOLVM_FAKE_QEMU, bin / kQemuProgram);
    std::ofstream(device_) << "";
    more_environment_ = {{"PATH", bin.string() + ":" + std::getenv("PATH")},
                         {"XDG_CACHE_HOME", cache_},
                         {"SMOLVM_ACCELERATOR", ""},
                         {"SMOLVM_KVM_DEVICE", device_},
                         {"FAKE_QEMU_LOG", starts_},
                         {"FAKE_QEMU_GO", go_},
                         {"FAKE_QEMU_KVM", "works"}};
  }
  void TearDown() override {
    std::ofstream(go_) << "";  // ends what waits for it
    MachineVmTest::TearDown();
  }

  void Play(const std::string& play) { more_environment_.back().second = play; }
  ToolResult Run(const Words& more = {}) {
    Words words = {"run", "--mem", "256", "-I", TinyImage()};
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"--", "echo", "hi"});
    return Machine(words);
  }
  // What was started on KVM so far.
  std::string Started() const { return fs::exists(starts_) ? ReadFile(starts_) : ""; }
  static int Lines(const std::string& text, const std::string& word) {
    int count = 0;
    for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; ++at) ++count;
    return count;
  }

  const fs::path cache_ = folder_.path() / "cache", device_ = folder_.path() / "kvm";
  const fs::path starts_ = folder_.path() / "starts", go_ = folder_.path() / "go";
};

TEST_F(AcceleratorVmTest, ABrokenKvmIsTriedOnceAndTheMachineEmulated) {
  const std::pair<const char*, const char*> cases[] = {
      {"abort", "QEMU was ended by signal 6: "},
      {"silence", "the kernel printed nothing in "},
      {"internal-error", "KVM internal error. Suberror: 1"}};
  for (const auto& [play, reason] : cases) {
    Play(play);
    fs::remove_all(cache_ / "smolvm-cuda/accelerator");
    fs::remove(starts_);
    const ToolResult result = Run();
    EXPECT_EQ(result.status, 0) << play << ": " << result.err;
    EXPECT_EQ(result.out, "hi\n");
    EXPECT_THAT(result.err, HasSubstr(std::string("smolvm: the machine is emulated, and slow: KVM "
                                                  "does not run the guest's kernel here: ") +
                                      reason));
    EXPECT_EQ(Lines(result.err, "emulated"), 1) << result.err;
    EXPECT_THAT(Started(), Not(HasSubstr("machine")));
  }
  const std::string started = Started();
  const ToolResult result = Run();
  EXPECT_EQ(result.out, "hi\n") << result.err;
  EXPECT_EQ(Started(), started) << "a verdict was not believed";
  EXPECT_THAT(Machine({"accelerator"}).out,
              AllOf(HasSubstr("accelerator=tcg\n"), HasSubstr("KVM internal error")));
}

TEST_F(AcceleratorVmTest, KvmThatIsAskedForNeverFallsBack) {
  for (const char* play : {"abort", "silence", "internal-error", "boots"}) {
    Play(play);
    const auto began = std::chrono::steady_clock::now();
    const ToolResult result = Run({"--accelerator", "kvm"});
    EXPECT_EQ(result.status, 125) << play << ": " << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, Not(HasSubstr("emulated")));
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(60)) << play;
  }
  more_environment_.push_back({"SMOLVM_KVM_DEVICE", folder_.path() / "none"});
  const ToolResult result = Run({"--accelerator", "kvm"});
  EXPECT_EQ(result.status, 125);
  EXPECT_THAT(result.err, HasSubstr("KVM was asked for: "));
  EXPECT_THAT(result.err, HasSubstr("/none is absent"));
}

TEST_F(AcceleratorVmTest, WithoutADeviceTheMachineIsEmulated) {
  more_environment_.push_back({"SMOLVM_KVM_DEVICE", folder_.path() / "none"});
  const ToolResult result = Run();
  EXPECT_EQ(result.out, "hi\n");
  EXPECT_THAT(result.err, HasSubstr("emulated, and slow: "));
  EXPECT_THAT(result.err, HasSubstr("/none is absent"));
  EXPECT_EQ(Started(), "");
}

TEST_F(AcceleratorVmTest, AWorkingKvmIsUsedWithTheProcessorThatWorked) {
  Play("arch");
  const ToolResult result = Run();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "hi\n");
  EXPECT_THAT(result.err, HasSubstr("the machine runs on KVM"));
  EXPECT_EQ(Started(),
            "trial host\ntrial host,-arch-capabilities\nmachine host,-arch-capabilities\n");
  EXPECT_THAT(Machine({"accelerator", "--json"}).out, HasSubstr("\"kvm_works\": true"));
  Play("internal-error");
  EXPECT_THAT(Machine({"accelerator", "--json"}).out, HasSubstr("\"kvm_works\": true"));
  EXPECT_THAT(Machine({"accelerator", "--json", "--retry"}).out, HasSubstr("\"kvm_works\": false"));
}

TEST_F(AcceleratorVmTest, AKvmThatPassesItsTrialAloneIsNotBelievedAgain) {
  Play("boots");
  ToolResult result = Run();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "hi\n");
  EXPECT_THAT(result.err, HasSubstr("KVM failed the machine, which is now emulated, and slow: "
                                    "QEMU stopped the machine: KVM internal error. Suberror: 1"));
  EXPECT_EQ(Started(), "trial host\nmachine host\n");
  EXPECT_THAT(Machine({"accelerator"}).out, HasSubstr("accelerator=tcg\n"));
  result = Run({"-d", "-n", "smolskill-tcg"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(Started(), "trial host\nmachine host\n");
  EXPECT_THAT(Machine({"list", "--json"}).out, HasSubstr("\"accelerator\": \"tcg\""));
  EXPECT_EQ(Machine({"delete", "--force", "smolskill-tcg"}).status, 0);
}

TEST_F(AcceleratorVmTest, AQemuThatDiesEndsTheCommandInSeconds) {
  Play("dies");
  const fs::path output = folder_.path() / "output";
  const pid_t launcher = StartMachine(
      {"run", "--mem", "256", "-I", TinyImage(), "--", "sh", "-c", "echo up; sleep 10000"}, output);
  ASSERT_TRUE(WaitForText(output, "up\n")) << FileTail(output, 4096);
  std::ofstream(go_) << "";
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(Wait(launcher), 125);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_THAT(FileTail(output, 4096),
              HasSubstr("the machine ended before the command did: QEMU was ended by signal 11"));
}

TEST_F(AcceleratorVmTest, AMachineThatIsPausedWithoutAWordEndsToo) {
  const fs::path output = folder_.path() / "output";
  more_environment_.push_back({"FAKE_QEMU_QMP", folder_.path() / "second.sock"});
  const pid_t launcher = StartMachine(
      {"run", "--mem", "256", "-I", TinyImage(), "--", "sh", "-c", "echo up; sleep 10000"}, output);
  ASSERT_TRUE(WaitForText(output, "up\n")) << FileTail(output, 4096);
  const UniqueFd qmp = ConnectIn(folder_.path(), "second.sock", SOCK_STREAM);
  ASSERT_TRUE(qmp.valid());
  const std::string words = "{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"stop\"}\n";
  EXPECT_EQ(send(qmp.get(), words.data(), words.size(), 0), static_cast<ssize_t>(words.size()));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(Wait(launcher), 125);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_THAT(FileTail(output, 4096), HasSubstr("QEMU stopped the machine: paused"));
}

TEST_F(AcceleratorVmTest, AKeptMachineThatQemuStopsHasFailedAndStartsAgain) {
  Play("stops");
  const std::string name = "smolskill-stops";
  ASSERT_EQ(Run({"-d", "-n", name}).status, 0);
  const fs::path output = folder_.path() / "output";
  const pid_t exec = StartMachine({"exec", name, "--", "sh", "-c", "echo up; sleep 10000"}, output);
  ASSERT_TRUE(WaitForText(output, "up\n")) << FileTail(output, 4096);
  std::ofstream(go_) << "";
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(Wait(exec), 125);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  const std::string reason = "QEMU stopped the machine: KVM internal error. Suberror: 1";
  EXPECT_THAT(FileTail(output, 4096), HasSubstr(reason));
  EXPECT_THAT(Machine({"list"}).out, HasSubstr("\n" + name + "  failed"));
  EXPECT_THAT(Machine({"list", "--json"}).out,
              AllOf(HasSubstr("\"status\": \"failed\""), HasSubstr(reason)));
  fs::remove(go_);
  Play("works");
  const ToolResult again = Machine({"exec", name, "--", "echo", "back"});
  EXPECT_EQ(again.out, "back\n") << again.err;
  EXPECT_THAT(again.err, HasSubstr("the machine " + name + " had ended: " + reason));
  EXPECT_THAT(Machine({"list"}).out, HasSubstr("\n" + name + "  running"));
  EXPECT_EQ(Machine({"delete", "--force", name}).status, 0);
}

}  // namespace
}  // namespace smolvm::machine
