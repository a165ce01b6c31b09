// Programs get the same answers remoted as natively.
#include <gmock/gmock.h>

#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

using ::testing::ContainsRegex;

// Each is a command of guest/semantics.cc, which says what is right.
class Semantics : public Remoting, public ::testing::WithParamInterface<const char*> {};

TEST_P(Semantics, Remoted) { Run({GetParam()}); }

TEST_P(Semantics, Native) { Run({GetParam()}, kNatively); }

INSTANTIATE_TEST_SUITE_P(Commands, Semantics,
                         ::testing::Values("capture_status", "dead_pool", "frees_across_allocators",
                                           "later_versions", "mapped_host_memory", "module_files",
                                           "null_functions", "occupancy", "one_address_each",
                                           "refusal_reasons", "two_contexts",
                                           "unmapped_registration", "unspecified_pitches"),
                         [](const auto& info) { return std::string(info.param); });

// A session with a limit.
TEST(MemoryLimit, HoldsForWhateverTakesMemory) {
  const Daemon daemon({"--memory-limit", "1M"});
  const auto guest = StartGuest(daemon.socket(), {"memory_limit"});
  EXPECT_EQ(guest->Wait(), 0) << guest->output() << daemon.log();
  daemon.AwaitLog("event=image_refused result=2", 2);
  EXPECT_THAT(daemon.log(),
              ContainsRegex("event=image_refused result=2 reason=.*take 12000.. bytes"));
  EXPECT_THAT(daemon.log(),
              ContainsRegex("event=image_refused result=2 reason=.*cannot be counted"));
}

class Refusals : public Remoting {
 protected:
  static std::string LogOf(std::vector<std::string> environment,
                           const std::string& command = "refused_unheard") {
    const Folder folder;
    environment.insert(environment.end(),
                       {"SMOLVM_CUDA_LOG=error", "SMOLVM_CUDA_LOG_FILE=" + folder / "guest.log"});
    Run({command}, environment);
    return Contents(folder / "guest.log");
  }
};

// What to change is read by who runs the program, not only by who runs the daemon.
TEST_F(Refusals, TheProgramsLogSaysWhy) {
  for (const std::string& log : {LogOf({}), LogOf(kNatively)}) {
    EXPECT_THAT(log, ContainsRegex("event=module_refused result=209 reason=.*-gencode"));
    EXPECT_THAT(log, ContainsRegex("event=module_refused result=218 reason=.*line 5: 'bar.sync'"));
    EXPECT_THAT(log, ContainsRegex("event=module_refused result=200 reason=.....*"));
    EXPECT_THAT(log, ContainsRegex("event=link_refused result=218 reason=.*line 5: 'bar.sync'"));
  }
}

// The daemon's log too: who looks there has no program to ask.
TEST_F(Refusals, OfAKernelAreLoggedOnBothSidesByName) {
  EXPECT_THAT(LogOf({}, "kernel_refused"),
              ContainsRegex("event=kernels_refused .*kernel 'k'.*cudaDeviceSynchronize"));
  const std::string reason =
      "event=kernel_refused kernel=k reason=.*unresolved extern function `cudaDeviceSynchronize`";
  EXPECT_THAT(LogOf(kNatively, "kernel_refused"), ContainsRegex(reason));
  daemon().AwaitLog("event=kernel_refused kernel=k", 1);
  EXPECT_THAT(daemon().log(), ContainsRegex(reason));
}

TEST_F(Refusals, AnUnknownLogLevelIsToldNativelyToo) {
  std::vector<std::string> environment = kNatively;
  environment.emplace_back("SMOLVM_CUDA_LOG=loud");
  EXPECT_THAT(Run({"round_trip"}, environment),
              ContainsRegex("name=SMOLVM_CUDA_LOG value=loud .*off, error, warn, info or debug"));
}

}  // namespace
}  // namespace smolvm::remoting
