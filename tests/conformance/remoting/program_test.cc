// What guest programs see while all goes well on the host.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "tests/conformance/remoting/fixture.h"

namespace smolvm::remoting {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Program : public Remoting, public ::testing::WithParamInterface<const char*> {};

// Each is a program of guest/*.cc, which says what is right.
TEST_P(Program, Works) { Run({GetParam()}); }

INSTANTIATE_TEST_SUITE_P(Errors, Program,
                         ::testing::Values("before_init", "error_names", "garbage_handles",
                                           "null_outputs", "proc_addresses", "huge_allocation"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Memory, Program,
                         ::testing::Values("round_trip", "host_register", "copies_back_in_order",
                                           "read_into_pinned", "pointer_attributes", "reset",
                                           "pageable_copies", "unmapped_sources"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Streams, Program,
                         ::testing::Values("host_functions", "host_function_feeds_copy",
                                           "stream_order", "per_thread_streams",
                                           "per_thread_and_legacy_streams",
                                           "per_thread_proc_address"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Processes, Program,
                         ::testing::Values("fork_after_init", "fork_in_traffic", "fork_before_init",
                                           "vfork_and_exec", "threads", "context_between_threads",
                                           "cancelled_thread", "exit_in_traffic"),
                         [](const auto& info) { return std::string(info.param); });
INSTANTIATE_TEST_SUITE_P(Links, Program, ::testing::Values("links", "managed"),
                         [](const auto& info) { return std::string(info.param); });
#ifdef SMOLVM_KERNELS_RUN
INSTANTIATE_TEST_SUITE_P(Kernels, Program,
                         ::testing::Values("vector_add", "many_parameters", "kernel_faults",
                                           "large_parameters", "launch_attributes"),
                         [](const auto& info) { return std::string(info.param); });
#else
INSTANTIATE_TEST_SUITE_P(Kernels, Program, ::testing::Values("refused_launch"),
                         [](const auto& info) { return std::string(info.param); });
#endif

class ProgramOutput : public Remoting {};

TEST_F(ProgramOutput, CallsFromExitHandlersWork) { EXPECT_EQ(Run({"calls_at_exit"}), "at exit\n"); }

TEST_F(ProgramOutput, BadModulesFillTheLog) {
  // The compiler's complaint names the line.
  EXPECT_THAT(Run({"bad_modules"}), HasSubstr("4"));
}

TEST_F(ProgramOutput, KernelsPrintOnTheGuestsStdoutInTheirPlace) {
#ifdef SMOLVM_KERNELS_RUN
  EXPECT_EQ(Run({"kernel_prints"}), "before\nline 0\nline 1\nline 2\nafter\n");
#else
  GTEST_SKIP() << "this build runs no kernels";
#endif
}

// The text is a stranger's: it may not stand in the daemon's log, where it could pass for a line.
TEST_F(ProgramOutput, FailedAssertionsGoToTheGuestsStderrAndNotToTheLog) {
#ifdef SMOLVM_KERNELS_RUN
  EXPECT_THAT(Run({"kernel_asserts"}), HasSubstr("Assertion `x\nforged=1` failed.\n"));
  EXPECT_THAT(daemon().log(), Not(HasSubstr("\nforged=1")));
#else
  GTEST_SKIP() << "this build runs no kernels";
#endif
}

TEST_F(ProgramOutput, VisibleDevices) {
  const std::string all = Run({"devices"});
  EXPECT_THAT(all, HasSubstr("init=0 counted=0 count=1\n"));
  const std::string one = "init=0 counted=0 count=1\n", none = "init=100 counted=3";
  const std::string uuid = all.substr(all.find("GPU-"), 40);
  const struct {
    std::string value, seen;
  } kCases[] = {{"0", one},
                {"0,1", one},
                {"", none},
                {"1,0", none},
                {"-1", none},
                {"0,-1", one},
                {"0,0", none},
                {uuid, one},
                {uuid.substr(0, 12), one},
                {"GPU-ffffffff", none},
                {"none", none}};
  for (const auto& c : kCases) {
    EXPECT_THAT(Run({"devices"}, {"CUDA_VISIBLE_DEVICES=" + c.value}), HasSubstr(c.seen))
        << "CUDA_VISIBLE_DEVICES=" << c.value;
  }
}

TEST_F(ProgramOutput, NothingIsPrintedUnasked) { EXPECT_EQ(Run({"round_trip"}), ""); }

// Who sets a level has asked for lines, also when there is no such level.
TEST_F(ProgramOutput, AnUnknownLogLevelIsOneLineAndNothingElse) {
  for (const char* value : {"loud", "Debug", "2"}) {
    const std::string output = Run({"round_trip"}, {std::string("SMOLVM_CUDA_LOG=") + value});
    EXPECT_THAT(output, HasSubstr(std::string("name=SMOLVM_CUDA_LOG value=") + value));
    EXPECT_THAT(output, HasSubstr("off, error, warn, info or debug"));
    EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 1) << output;
  }
  EXPECT_EQ(Run({"round_trip"}, {"SMOLVM_CUDA_LOG="}), "");
  EXPECT_EQ(Run({"round_trip"}, {"SMOLVM_CUDA_LOG=off"}), "");
}

TEST_F(ProgramOutput, SixteenProcessesAtOnce) {
  // With workers at hand: to start sixteen on a busy machine takes longer than cuInit may wait.
  const Daemon ready({"--workers-ready", "16"});
  const double end = Now() + 30;
  while (ready.ReadyWorkers() < 16 && Now() < end) usleep(20'000);
  std::vector<std::unique_ptr<Process>> guests;
  for (int i = 0; i < 16; ++i)
    guests.push_back(StartGuest(ready.socket(), {"round_trip", "200000"}));
  for (auto& guest : guests) EXPECT_EQ(guest->Wait(), 0) << guest->output();
}

TEST_F(ProgramOutput, MoreProcessesAtOnceThanWorkersReady) {
  // The others wait until a worker has started for them.
  const Daemon ready({"--workers-ready", "1"});
  std::vector<std::unique_ptr<Process>> guests;
  for (int i = 0; i < 6; ++i)
    guests.push_back(StartGuest(ready.socket(), {"round_trip", "200000"}));
  for (auto& guest : guests) EXPECT_EQ(guest->Wait(), 0) << guest->output();
}

TEST_F(ProgramOutput, ALongLineHoldsUpOnlyWhoWaits) {
  Run({"long_line"}, {"SMOLVM_CUDA_EMULATE_RTT_US=100000"});
}

TEST_F(ProgramOutput, AnUnusableRoundTripIsOneLineAndNothingElse) {
  for (const char* value : {"far", "-1", "1000001", "99999999999999999999", "200us"}) {
    const Folder folder;
    Run({"round_trip"}, {std::string("SMOLVM_CUDA_EMULATE_RTT_US=") + value,
                         "SMOLVM_CUDA_LOG=debug", "SMOLVM_CUDA_LOG_FILE=" + folder / "guest.log"});
    const std::string log = Contents(folder / "guest.log");
    EXPECT_THAT(log, HasSubstr("event=bad_setting name=SMOLVM_CUDA_EMULATE_RTT_US")) << value;
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  }
}

TEST_F(ProgramOutput, SessionsCannotNameEachOthersThings) {
  const auto owner = Guest({"owner"});
  ASSERT_TRUE(owner->Await("ready")) << owner->output();
  std::istringstream handles(owner->output());
  std::vector<std::string> words{std::istream_iterator<std::string>(handles), {}};
  ASSERT_EQ(words.size(), 7u);
  words.pop_back();
  words[0] = "intruder";
  Run(words);
  owner->CloseInput();
  EXPECT_EQ(owner->Wait(), 0) << owner->output();
}

}  // namespace
}  // namespace smolvm::remoting
