#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scripts/sandbox.h"

namespace smolvm::scripts {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class SoakTest : public ::testing::Test {
 protected:
  SoakTest() {
    for (const char* name : {"setup", "build", "fuzz"}) {
      box_.Write(std::string("checkout/scripts/") + name,
                 "#!/bin/bash\necho \"" + std::string(name) + " $*\" >>\"$SANDBOX_CALLS\"\n");
    }
    box_.Write("checkout/tests/fuzz/frame/corpus/x", "");
    box_.AddTool("ctest",
                 "echo \"ctest $* rounds=$SMOLVM_TEST_ROUNDS\" >>\"$SANDBOX/calls\"\n"
                 "exit \"$(cat \"$SANDBOX/status\")\"");
    box_.LinkTool("tail");
    box_.Write("status", "0");
    box_.Set("SANDBOX_CALLS", (box_.dir() / "calls").string());
    box_.Set("SMOLVM_SOAK_SHARE", "0");
  }
  Outcome Run(const std::string& arguments) { return box_.Run("soak", arguments); }

  Sandbox box_;
};

TEST_F(SoakTest, TellsWhenItLastRan) {
  const Outcome never = Run("--last");
  EXPECT_EQ(never.status, 1);
  EXPECT_EQ(never.out, "never run\n");
  EXPECT_EQ(Run("machines fuzz").status, 0);
  const Outcome last = Run("--last");
  EXPECT_EQ(last.status, 0);
  EXPECT_THAT(last.out, MatchesRegex("20..-..-..T..:..:..Z commit=.* took=.:.. "
                                     "rounds=machines:1,fuzz:1 result=passed\n"));
}

TEST_F(SoakTest, RunsEveryRound) {
  EXPECT_EQ(Run("").status, 0);
  const std::string calls = box_.Read("calls");
  EXPECT_THAT(calls, HasSubstr("setup"));
  EXPECT_THAT(calls, HasSubstr("build release"));
  EXPECT_THAT(calls, HasSubstr("-R ^emulation_random_kernels_test rounds="));
  EXPECT_THAT(calls, HasSubstr("-R ^machine_lifecycle_test$ rounds=200"));
  EXPECT_THAT(calls, HasSubstr("fuzz --seconds 1"));
}

TEST_F(SoakTest, AFailureIsKeptAndDoesNotEndTheOthers) {
  box_.Write("status", "8");
  const Outcome outcome = Run("machines fuzz");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("failed: machines"));
  EXPECT_THAT(box_.Read("calls"), HasSubstr("fuzz --seconds"));
  EXPECT_THAT(Run("--last").out, HasSubstr("rounds=machines:0,fuzz:1 result=failed(machines)"));
}

TEST_F(SoakTest, ARunThatNeverBeganIsTheLastOneToo) {
  EXPECT_EQ(Run("fuzz").status, 0);
  box_.Write("checkout/scripts/build", "#!/bin/bash\nexit 1\n");
  EXPECT_EQ(Run("fuzz").status, 1);
  EXPECT_THAT(Run("--last").out, HasSubstr("result=failed(build)"));
  box_.Write("checkout/scripts/build", "#!/bin/bash\nkill -TERM $PPID\n");
  EXPECT_EQ(Run("fuzz").status, 143);
  EXPECT_THAT(Run("--last").out, HasSubstr("result=interrupted"));
}

TEST_F(SoakTest, RefusesWhatItDoesNotKnow) {
  for (const char* arguments :
       {"--minutes", "--minutes 0", "--minutes 09", "--minutes x", "naps", "--often"}) {
    EXPECT_EQ(Run(arguments).status, 2) << arguments;
  }
  EXPECT_EQ(Run("--last").out, "never run\n");
}

}  // namespace
}  // namespace smolvm::scripts
