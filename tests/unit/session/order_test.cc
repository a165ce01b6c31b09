// Lanes, the order between them, and calls that block.
#include <algorithm>
#include <random>

#include "tests/unit/session/fake.h"

namespace smolvm::session {
namespace {

using OrderTest = SessionTest;

TEST_F(OrderTest, AnswersACall) {
  const Received reply = Ask(kEcho, 1, "hello");
  EXPECT_EQ(reply.args, "hello");
  EXPECT_EQ(reply.header.lane_or_status, 0u);
  EXPECT_EQ(reply.header.flags, wire::kFlagReply);
}

TEST_F(OrderTest, EachLaneHasAThreadOfItsOwnAndKeepsIt) {
  const std::string one = Ask(kThread, 1).args;
  const std::string two = Ask(kThread, 2).args;
  EXPECT_NE(one, two);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(Ask(kThread, 1).args, one);
    EXPECT_EQ(Ask(kThread, 2).args, two);
  }
}

TEST_F(OrderTest, FramesRunInTheOrderOfTheConnectionWhateverTheirLane) {
  std::mt19937 random(1);
  std::vector<std::string> sent;
  std::string stream;
  for (int i = 0; i < 5000; ++i) {
    sent.push_back(std::to_string(i));
    stream += Frame(kNote, random() % 7 + 1, wire::kFlagNoReply, ++sequence_, sent.back());
  }
  SendRaw(stream);
  ASSERT_EQ(Ask(kEcho, 3, "last").args, "last");
  sent.emplace_back("last");
  EXPECT_EQ(handler_.notes(), sent);
}

TEST_F(OrderTest, ThreeHundredLanes) {
  for (int round = 0; round < 3; ++round) {
    for (uint32_t lane = 1; lane <= 300; ++lane) {
      ASSERT_EQ(Ask(kEcho, lane * 7919, std::to_string(lane)).args, std::to_string(lane));
    }
  }
}

TEST_F(OrderTest, AThreadThatBlocksHoldsUpNobody) {
  const uint64_t blocked = Send(kBlock, 1, "\1");
  handler_.AwaitWaiting(1);
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(Ask(kEcho, 2, "x").args, "x");
    ASSERT_EQ(Ask(kEcho, 3, "y").args, "y");
  }
  handler_.Open(1);
  const Received reply = Reply();
  EXPECT_EQ(reply.header.sequence, blocked);
  EXPECT_EQ(Ask(kEcho, 1, "z").args, "z");
}

TEST_F(OrderTest, ManyThreadsBlockAtOnce) {
  constexpr int kCount = 60;
  std::set<uint64_t> awaited;
  for (int i = 0; i < kCount; ++i) awaited.insert(Send(kBlock, i + 1, std::string(1, char(i))));
  handler_.AwaitWaiting(kCount);
  EXPECT_EQ(Ask(kEcho, 1000, "still here").args, "still here");
  for (int i = kCount - 1; i >= 0; --i) handler_.Open(i);
  for (int i = 0; i < kCount; ++i) awaited.erase(Reply().header.sequence);
  EXPECT_TRUE(awaited.empty());
}

TEST_F(OrderTest, AfterBlockingTheLaneGoesOnReading) {
  handler_.Open(1);
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(Status(kBlock, 1, "\1"), 0u);
    ASSERT_EQ(Ask(kEcho, 1, "x").args, "x");
  }
}

TEST_F(OrderTest, FramesReadAheadAreServedWhileTheirReaderBlocks) {
  // One write, so that all of it is in the reader's buffer when the first call blocks.
  SendRaw(Frame(kBlock, 1, 0, 1, "\1") + Frame(kNote, 2, wire::kFlagNoReply, 2, "a") +
          Frame(kBlock, 2, 0, 3, "\1") + Frame(kEcho, 3, 0, 4, "b"));
  const Received reply = Reply();
  EXPECT_EQ(reply.header.sequence, 4u);
  EXPECT_EQ(handler_.notes(), (std::vector<std::string>{"a", "b"}));
  handler_.Open(1);
  const uint64_t first = Reply().header.sequence, second = Reply().header.sequence;
  EXPECT_EQ(first + second, 4u);
}

TEST_F(OrderTest, AFrameForALaneThatIsBusyWaitsForIt) {
  Send(kBlock, 1, "\1");
  handler_.AwaitWaiting(1);
  Send(kEcho, 1, "later");  // no well-behaved guest does this
  handler_.Open(1);
  EXPECT_EQ(Reply().header.call_id, kBlock);
  EXPECT_EQ(Reply().args, "later");
}

TEST_F(OrderTest, RandomMixOfLanesAndBlocking) {
  for (int gate = 0; gate < 4; ++gate) handler_.Open(gate);
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::set<uint64_t> awaited;
    std::string stream;
    for (uint32_t lane = 1; lane <= 6; ++lane) {
      for (uint32_t i = random() % 3; i != 0; --i) {
        stream += Frame(kNote, lane, wire::kFlagNoReply, ++sequence_, "n");
      }
      awaited.insert(++sequence_);
      stream += random() % 2 ? Frame(kBlock, lane, 0, sequence_, std::string(1, random() % 4))
                             : Frame(kEcho, lane, 0, sequence_, "e");
    }
    SendRaw(stream);
    for (int i = 0; i < 6; ++i) awaited.erase(Reply().header.sequence);
    ASSERT_TRUE(awaited.empty());
  }
}

TEST_F(OrderTest, ALaneEndsOnItsThreadAndItsIdMayBeUsedAgain) {
  Ask(kEcho, 5, "x");
  Defer(wire::kLaneEnds, 5);
  handler_.AwaitLaneEnd(5);
  EXPECT_EQ(Ask(kEcho, 5, "y").args, "y");
  Defer(wire::kLaneEnds, 77);  // never called anything
  EXPECT_EQ(Ask(kEcho, 6, "z").args, "z");
}

TEST_F(OrderTest, ThreadsComeAndGo) {
  for (uint32_t lane = 1; lane <= 500; ++lane) {
    ASSERT_EQ(Ask(kEcho, lane, "x").args, "x");
    Defer(wire::kLaneEnds, lane);
  }
}

TEST_F(OrderTest, GoodbyeEndsTheSession) {
  Ask(kEcho, 1, "x");
  Defer(wire::kGoodbye, 1);
  AwaitEnd();
  EXPECT_TRUE(GuestSeesEnd());
}

TEST_F(OrderTest, TheEndIsSeenWhileLanesBlock) {
  Send(kBlock, 1, "\1");
  Send(kBlock, 2, "\1");
  handler_.AwaitWaiting(2);
  guest_.reset();
  AwaitEnd();
}

TEST_F(OrderTest, TheEndIsSeenWhileACallIsStuckWithoutSayingSo) {
  Send(kStuck, 1, "\1");
  handler_.AwaitWaiting(1);
  guest_.reset();
  AwaitEnd();
}

TEST_F(OrderTest, WhatWasSentBeforeTheGuestLeftIsStillRun) {
  for (int i = 0; i < 100; ++i) Defer(kNote, i % 3, "n");
  guest_.reset();
  AwaitEnd();
  EXPECT_EQ(handler_.notes().size(), 100u);
}

TEST_F(OrderTest, TextTravelsAheadOfItsReply) {
  Send(kAhead, 1);
  Received received;
  ASSERT_TRUE(Receive(&received));
  EXPECT_EQ(received.header.call_id, wire::kDeviceOutput);
  EXPECT_EQ(received.bulk, "text");
  EXPECT_EQ(Reply().header.call_id, kAhead);
}

}  // namespace
}  // namespace smolvm::session
