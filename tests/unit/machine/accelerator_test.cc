// What is kept of a trial of KVM, and what is tried when: over a QEMU that is a script.
#include "machine/guest/accelerator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "machine/guest/trial.h"
#include "machine/launch/accelerator.h"
#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

// $FAKE_VERSION is its version. Every trial is a line in the file $FAKE_STARTS.
constexpr char kQemu[] = R"(#!/bin/bash
if [ "$1" = --version ]; then echo "QEMU emulator version $FAKE_VERSION"; exit; fi
for word in "$@"; do
  case $previous:$word in
    -cpu:*) cpu=$word ;;
    -chardev:file,id=console,path=*) console=${word#*path=} ;;
  esac
  previous=$word
done
echo "$cpu" >>"$FAKE_STARTS"
[ -z "$FAKE_SLOW" ] || sleep 0.5
case $FAKE_PLAY:$cpu in
  arch:host | abort:*) echo "qemu: error: failed to set MSR 0x10a to 0x69" >&2; kill -ABRT $$ ;;
  other-register:*) echo "qemu: error: failed to set MSR 0x48f to 0x1" >&2; kill -ABRT $$ ;;
  error:*) printf 'KVM internal error. Suberror: 1\nRAX=0\n' >&2; exec sleep 100 ;;
  run:*) printf 'error: kvm run failed Bad address\nRAX=0\n' >&2; exec sleep 100 ;;
  spins:*) while :; do :; done ;;
  ends:*) exit 3 ;;
esac
echo "smolvm-trial: the kernel runs programs" >"$console"
)";

class AcceleratorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path bin = folder_.path() / "bin";
    fs::create_directories(bin);
    std::ofstream(bin / kQemuProgram) << kQemu;
    fs::permissions(bin / kQemuProgram, fs::perms::owner_all);
    std::ofstream(device_) << "";
    kernel_ = Kernel("6.1-1");
    setenv("PATH", (bin.string() + ":/usr/bin:/bin").c_str(), 1);
    setenv("SMOLVM_KVM_DEVICE", device_.c_str(), 1);
    setenv("SMOLVM_MACHINE_AGENT", "/bin/true", 1);
    setenv("FAKE_STARTS", starts_.c_str(), 1);
    setenv("FAKE_VERSION", "7.2.22", 1);
    for (const char* name : {"SMOLVM_ACCELERATOR", "FAKE_PLAY", "FAKE_SLOW"}) unsetenv(name);
  }

  fs::path Kernel(const std::string& version) {
    const fs::path image = cache_ / "kernels" / version / "vmlinuz";
    fs::create_directories(image.parent_path());
    std::ofstream(image) << version;
    return image;
  }
  AcceleratorChoice Choose(AcceleratorWish wish = AcceleratorWish::kAuto) {
    return ChooseAccelerator(wish, kernel_, cache_);
  }
  // The processor models that were tried, a line each.
  std::string Tried() const { return fs::exists(starts_) ? ReadFile(starts_) : ""; }
  fs::path File() const { return cache_ / "accelerator/6.1-1.json"; }
  void Replace(const std::string& from, const std::string& to) {
    std::string text = ReadFile(File());
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    WriteFileAtomically(File(), text.replace(at, from.size(), to));
  }

  const TempFolder folder_{fs::temp_directory_path() / "smolvm-accelerator-test"};
  const fs::path cache_ = folder_.path() / "cache";
  const fs::path starts_ = folder_.path() / "starts", device_ = folder_.path() / "kvm";
  fs::path kernel_;
};

TEST_F(AcceleratorTest, TheOptionComesBeforeTheVariableAndABadValueIsAnError) {
  EXPECT_EQ(ChosenWish(), AcceleratorWish::kAuto);
  setenv("SMOLVM_ACCELERATOR", "", 1);
  EXPECT_EQ(ChosenWish(), AcceleratorWish::kAuto);
  setenv("SMOLVM_ACCELERATOR", "tcg", 1);
  EXPECT_EQ(ChosenWish(), AcceleratorWish::kTcg);
  EXPECT_EQ(ChosenWish("kvm"), AcceleratorWish::kKvm);
  EXPECT_EQ(ChosenWish("auto"), AcceleratorWish::kAuto);
  setenv("SMOLVM_ACCELERATOR", "KVM", 1);
  try {
    ChosenWish();
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_STREQ(failure.what(),
                 "SMOLVM_ACCELERATOR: 'KVM' is not an accelerator; auto, kvm and tcg are");
  }
  EXPECT_THROW(ChosenWish("hvf"), Failure);
}

TEST_F(AcceleratorTest, AKvmThatBootsTheKernelIsTriedOnceAndBelieved) {
  for (int i = 0; i < 2; ++i) {
    const AcceleratorChoice choice = Choose();
    EXPECT_EQ(choice.accelerator, Accelerator::kKvm) << choice.reason;
    EXPECT_EQ(choice.cpu, "host");
    EXPECT_EQ(choice.reason, "");
  }
  EXPECT_EQ(Tried(), "host\n");
  EXPECT_EQ(Choose(AcceleratorWish::kKvm).accelerator, Accelerator::kKvm);
  EXPECT_EQ(Choose(AcceleratorWish::kTcg).accelerator, Accelerator::kTcg);
  EXPECT_EQ(Choose(AcceleratorWish::kTcg).cpu, "max");
  EXPECT_EQ(Tried(), "host\n");
}

TEST_F(AcceleratorTest, TheCapabilityIsLeftOutWhereItCannotBeSet) {
  setenv("FAKE_PLAY", "arch", 1);
  for (int i = 0; i < 2; ++i) {
    const AcceleratorChoice choice = Choose();
    EXPECT_EQ(choice.accelerator, Accelerator::kKvm) << choice.reason;
    EXPECT_EQ(choice.cpu, "host,-arch-capabilities");
  }
  EXPECT_EQ(Tried(), "host\nhost,-arch-capabilities\n");
}

TEST_F(AcceleratorTest, EachWayOfFailingIsSaidAndKept) {
  const std::pair<const char*, const char*> cases[] = {
      {"abort", "QEMU was ended by signal 6: qemu: error: failed to set MSR 0x10a to 0x69"},
      {"other-register", "QEMU was ended by signal 6: qemu: error: failed to set MSR 0x48f to 0x1"},
      {"error", "KVM internal error. Suberror: 1"},
      {"run", "kvm run failed Bad address"},
      {"ends", "QEMU ended with status 3"},
      {"spins", "the kernel printed nothing in "}};
  for (const auto& [play, reason] : cases) {
    SCOPED_TRACE(play);
    fs::remove(starts_);
    fs::remove(File());
    setenv("FAKE_PLAY", play, 1);
    AcceleratorChoice choice = Choose();
    EXPECT_EQ(choice.accelerator, Accelerator::kTcg);
    EXPECT_EQ(choice.cpu, "max");
    EXPECT_THAT(choice.reason,
                AllOf(HasSubstr("KVM does not run the guest's kernel here: "), HasSubstr(reason)));
    const std::string tried = Tried();
    EXPECT_EQ(tried, play == std::string("abort") ? "host\nhost,-arch-capabilities\n" : "host\n");
    EXPECT_EQ(Choose().reason, choice.reason);
    EXPECT_EQ(Tried(), tried) << "a verdict was not believed";
  }
}

TEST_F(AcceleratorTest, AWishForKvmTriesAgainAndNeverFallsBack) {
  setenv("FAKE_PLAY", "ends", 1);
  EXPECT_EQ(Choose().accelerator, Accelerator::kTcg);
  EXPECT_THROW(Choose(AcceleratorWish::kKvm), Failure);
  EXPECT_EQ(Tried(), "host\nhost\n");
  unsetenv("FAKE_PLAY");
  EXPECT_EQ(Choose().accelerator, Accelerator::kTcg);
  EXPECT_EQ(Choose(AcceleratorWish::kKvm).accelerator, Accelerator::kKvm);
  EXPECT_EQ(Choose().accelerator, Accelerator::kKvm);
}

TEST_F(AcceleratorTest, AVerdictIsTrueOfOneBootOneQemuAndOneKernel) {
  setenv("FAKE_PLAY", "ends", 1);
  Choose();
  unsetenv("FAKE_PLAY");
  std::string boot = ReadFile("/proc/sys/kernel/random/boot_id");
  boot.pop_back();
  Replace(boot, "another");
  EXPECT_FALSE(KeptVerdict(kernel_, cache_));
  EXPECT_EQ(Choose().accelerator, Accelerator::kKvm);
  EXPECT_EQ(Tried(), "host\nhost\n");

  setenv("FAKE_VERSION", "8.0.0", 1);
  EXPECT_FALSE(KeptVerdict(kernel_, cache_));
  setenv("FAKE_PLAY", "ends", 1);
  EXPECT_EQ(Choose().accelerator, Accelerator::kTcg);
  EXPECT_EQ(Tried(), "host\nhost\nhost\n");

  const fs::path other = folder_.path() / "other";
  fs::create_directories(other);
  fs::copy(folder_.path() / "bin" / kQemuProgram, other / kQemuProgram);
  setenv("PATH", (other.string() + ":/usr/bin:/bin").c_str(), 1);
  EXPECT_FALSE(KeptVerdict(kernel_, cache_));
  setenv("PATH", ((folder_.path() / "bin").string() + ":/usr/bin:/bin").c_str(), 1);
  EXPECT_TRUE(KeptVerdict(kernel_, cache_));

  // Of another kernel nothing is known, and what comes of it leaves this one's alone.
  const fs::path newer = Kernel("6.1-2");
  EXPECT_FALSE(KeptVerdict(newer, cache_));
  unsetenv("FAKE_PLAY");
  EXPECT_TRUE(TryKvm(newer, cache_).works);
  EXPECT_FALSE(KeptVerdict(kernel_, cache_)->works);
}

TEST_F(AcceleratorTest, ADamagedFileIsNoVerdict) {
  for (const char* text : {"", "{", "[]", "{\"works\": true}", "null"}) {
    fs::create_directories(File().parent_path());
    std::ofstream(File()) << text;
    EXPECT_FALSE(KeptVerdict(kernel_, cache_)) << text;
    EXPECT_EQ(Choose().accelerator, Accelerator::kKvm) << text;
    EXPECT_TRUE(KeptVerdict(kernel_, cache_)->works);
  }
}

TEST_F(AcceleratorTest, ThoseWhoComeAtOnceWaitForOneTrial) {
  setenv("FAKE_SLOW", "1", 1);
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(Choose().accelerator == Accelerator::kKvm ? 0 : 1);
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(Tried(), "host\n");
}

TEST_F(AcceleratorTest, WithoutADeviceNothingIsTried) {
  fs::remove(device_);
  AcceleratorChoice choice = Choose();
  EXPECT_EQ(choice.accelerator, Accelerator::kTcg);
  EXPECT_EQ(choice.reason, device_.string() + " is absent");
  EXPECT_THROW(Choose(AcceleratorWish::kKvm), Failure);
  fs::create_directory(device_);  // nobody opens one for writing, root included
  choice = Choose();
  EXPECT_THAT(choice.reason, HasSubstr("cannot be opened by this user: "));
  EXPECT_EQ(Tried(), "");
}

TEST_F(AcceleratorTest, AMachineThatFailedIsBelievedToo) {
  EXPECT_EQ(Choose().accelerator, Accelerator::kKvm);
  KeepFailure(kernel_, cache_, "QEMU was ended by signal 11");
  const AcceleratorChoice choice = Choose();
  EXPECT_EQ(choice.accelerator, Accelerator::kTcg);
  EXPECT_THAT(choice.reason, HasSubstr("QEMU was ended by signal 11"));
  EXPECT_EQ(Tried(), "host\n");
}

TEST(AcceleratorReportTest, SaysWhatIsKnown) {
  AcceleratorReport report;
  EXPECT_THAT(FormatAccelerator(report),
              AllOf(HasSubstr("accelerator=unknown\n"), HasSubstr("has not been tried yet")));
  EXPECT_THAT(FormatAcceleratorJson(report), HasSubstr("\"kvm_works\": null"));
  report.verdict = Verdict{"boot", "/q: QEMU 7", "/k", false, "", "it \"stopped\"", 1};
  EXPECT_THAT(FormatAccelerator(report),
              AllOf(HasSubstr("accelerator=tcg\n"), HasSubstr("it \"stopped\""),
                    HasSubstr("qemu=/q: QEMU 7\n"), HasSubstr("--retry")));
  EXPECT_THAT(FormatAcceleratorJson(report), HasSubstr("\"kvm_works\": false"));
  report.verdict->works = true;
  report.verdict->cpu = "host";
  EXPECT_THAT(FormatAccelerator(report), HasSubstr("accelerator=kvm\n"));
  report.no_device = "/dev/kvm is absent";
  EXPECT_THAT(FormatAccelerator(report),
              AllOf(HasSubstr("accelerator=tcg\n"), HasSubstr("reason=/dev/kvm is absent\n")));
}

}  // namespace
}  // namespace smolvm::machine
