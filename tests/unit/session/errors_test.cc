// Deferred errors, and calls that are not served.
#include "tests/unit/session/fake.h"

namespace smolvm::session {
namespace {

using ErrorsTest = SessionTest;

TEST_F(ErrorsTest, AFailureIsTheReplysStatus) {
  EXPECT_EQ(Status(kFail, 1, Bytes(7)), 7u);
  EXPECT_EQ(Status(kEcho, 1), 0u);
}

TEST_F(ErrorsTest, AFailureMayCarryItsLog) {
  const Received reply = Ask(kFailWithLog, 1, "line 3: no such instruction");
  EXPECT_EQ(reply.header.lane_or_status, 218u);
  EXPECT_EQ(reply.args, "line 3: no such instruction");
}

TEST_F(ErrorsTest, ADeferredFailureIsToldOnceToTheSameLane) {
  Defer(kFail, 1, Bytes(700));
  EXPECT_EQ(Status(kEcho, 2, "x"), 0u);
  const Received reply = Ask(kEcho, 1, "y");
  EXPECT_EQ(reply.header.lane_or_status, 700u);
  EXPECT_EQ(reply.args, "");
  EXPECT_EQ(Status(kEcho, 1, "z"), 0u);
}

TEST_F(ErrorsTest, ACallWithOutputsIsNotRunAfterADeferredFailure) {
  Defer(kFail, 1, Bytes(1));
  Ask(kEcho, 1, "must not run");
  Ask(kEcho, 1, "runs");
  EXPECT_EQ(handler_.notes(), std::vector<std::string>{"runs"});
}

TEST_F(ErrorsTest, ItsBulkIsReadPast) {
  Defer(kFail, 1, Bytes(1));
  EXPECT_EQ(Ask(kSum, 1, "", std::string(200'000, '\1')).header.lane_or_status, 1u);
  EXPECT_EQ(Ask(kSum, 1, "", std::string(200'000, '\1')).args, "200000");
}

TEST_F(ErrorsTest, ACallWithoutOutputsRunsAndReturnsTheDeferredFailure) {
  Defer(kFail, 1, Bytes(2));
  EXPECT_EQ(Status(kNote, 1, "runs"), 2u);
  EXPECT_EQ(handler_.notes(), std::vector<std::string>{"runs"});
  EXPECT_EQ(Status(kNote, 1), 0u);
}

TEST_F(ErrorsTest, LaterDeferredCallsRunAndTheFirstFailureCounts) {
  Defer(kFail, 1, Bytes(3));
  Defer(kNote, 1, "runs");
  Defer(kFail, 1, Bytes(4));
  EXPECT_EQ(Status(kEcho, 1), 3u);
  EXPECT_EQ(Status(kEcho, 1), 0u);
  EXPECT_EQ(handler_.notes().front(), "runs");
}

TEST_F(ErrorsTest, AnUnknownCallIsNotSupportedAndTheSessionGoesOn) {
  for (uint32_t id : {uint32_t{kPastTheEnd}, wire::kMaxCallId, wire::kMaxCallId + 1, UINT32_MAX}) {
    const Received reply = Ask(id, 1, "args", std::string(100'000, 'b'));
    EXPECT_EQ(reply.header.lane_or_status, 801u);
  }
  EXPECT_EQ(Ask(kEcho, 1, "x").args, "x");
}

TEST_F(ErrorsTest, AnUnknownCallThatNobodyWaitsForIsADeferredFailure) {
  Defer(kPastTheEnd, 1, "args", "bulk");
  EXPECT_EQ(Status(kEcho, 1), 801u);
  EXPECT_EQ(Status(kEcho, 1), 0u);
}

TEST_F(ErrorsTest, AnUnknownCallTellsAnEarlierFailureToo) {
  Defer(kFail, 1, Bytes(5));
  EXPECT_EQ(Status(kPastTheEnd, 1), 5u);
  EXPECT_EQ(Status(kPastTheEnd, 1), 801u);
}

TEST_F(ErrorsTest, TooManyLanes) {
  Start({.max_lanes = 3});
  for (uint32_t lane = 1; lane <= 3; ++lane) ASSERT_EQ(Status(kEcho, lane), 0u);
  EXPECT_EQ(Ask(kSum, 4, "a", "bulk").header.lane_or_status, 2u);
  ASSERT_EQ(Status(kEcho, 3), 0u);
  Defer(wire::kLaneEnds, 3);
  handler_.AwaitLaneEnd(3);
  // Its thread may take a moment more to end.
  uint32_t status = 2;
  for (int i = 0; i < 1000 && status == 2; ++i) status = Status(kEcho, 4);
  EXPECT_EQ(status, 0u);
}

TEST_F(ErrorsTest, NoErrorIsForgottenForWantOfALane) {
  Start({.max_lanes = 1});
  ASSERT_EQ(Status(kEcho, 1), 0u);
  Defer(kNote, 2, "x");
  EXPECT_TRUE(GuestSeesEnd());
}

}  // namespace
}  // namespace smolvm::session
