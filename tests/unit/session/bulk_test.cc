// Bulk in pieces, both ways.
#include "tests/unit/session/fake.h"

namespace smolvm::session {
namespace {

using BulkTest = SessionTest;

TEST_F(BulkTest, ToTheHost) {
  for (size_t size : {0u, 1u, 999u, 1000u, 65'536u, 3'000'001u}) {
    std::string bulk(size, '\0');
    uint64_t sum = 0;
    for (size_t i = 0; i < size; ++i) {
      bulk[i] = FakeHandler::Pattern(i);
      sum += static_cast<unsigned char>(bulk[i]);
    }
    EXPECT_EQ(Ask(kSum, 1, "args", bulk).args, std::to_string(sum)) << size;
  }
}

TEST_F(BulkTest, ToTheGuest) {
  for (uint64_t size : {0u, 1u, 16'383u, 16'384u, 100'000u, 5'000'000u}) {
    const Received reply = Ask(kFetch, 1, Bytes(size));
    ASSERT_EQ(reply.bulk.size(), size);
    for (uint64_t i = 0; i < size; ++i) {
      ASSERT_EQ(reply.bulk[i], FakeHandler::Pattern(i)) << i << " of " << size;
    }
  }
}

TEST_F(BulkTest, APieceIsNeverLargerThanPromised) {
  Send(kFetch, 1, Bytes(5'000'000));
  Received piece;
  do {
    ASSERT_TRUE(Receive(&piece));
    EXPECT_LE(piece.bulk.size(), wire::kMaxReplyPieceBytes);
  } while (piece.header.flags & wire::kFlagMore);
  EXPECT_EQ(piece.bulk.size(), 0u);
}

TEST_F(BulkTest, WhatAHandlerLeavesIsReadPast) {
  EXPECT_EQ(Ask(kIgnoreBulk, 1, "", std::string(500'000, 'x')).header.lane_or_status, 0u);
  EXPECT_EQ(Ask(kEcho, 1, "next").args, "next");
}

TEST_F(BulkTest, AfterBlockingToo) {
  const uint64_t first = Send(kBlockAndFetch, 1, "\1");
  handler_.AwaitWaiting(1);
  EXPECT_EQ(Ask(kEcho, 2, "x").args, "x");
  handler_.Open(1);
  const Received reply = Reply();
  EXPECT_EQ(reply.header.sequence, first);
  EXPECT_EQ(reply.bulk.size(), 300'000u);
}

TEST_F(BulkTest, CallsThatNobodyWaitsForCarryBulk) {
  for (int i = 0; i < 200; ++i) Defer(kSum, i % 2, "", std::string(50'000, 'x'));
  EXPECT_EQ(Ask(kEcho, 1, "x").args, "x");
  EXPECT_EQ(Ask(kEcho, 0, "x").args, "x");
}

TEST_F(BulkTest, AGuestThatNeverReadsStallsOnlyItself) {
  for (int i = 0; i < 20; ++i) Send(kFetch, 1, Bytes(1'000'000));
  guest_.reset();
  AwaitEnd();
}

}  // namespace
}  // namespace smolvm::session
