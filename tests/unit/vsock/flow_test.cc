#include "host-daemon/vsock/flow.h"

#include <gtest/gtest.h>

namespace smolvm::vsock {
namespace {

constexpr uint32_t kOwn = 256 * 1024;

Header FromGuest(uint32_t buf_alloc, uint32_t fwd_cnt, Op op = Op::kRw) {
  Header h;
  h.op = op;
  h.buf_alloc = buf_alloc;
  h.fwd_cnt = fwd_cnt;
  return h;
}

TEST(FlowTest, SendsNothingBeforeTheGuestNamedItsBuffer) {
  Flow flow(kOwn);
  EXPECT_EQ(flow.Sendable(), 0u);
  flow.OnHeader(FromGuest(1000, 0));
  EXPECT_EQ(flow.Sendable(), 1000u);
}

TEST(FlowTest, CreditShrinksAndReturns) {
  Flow flow(kOwn);
  flow.OnHeader(FromGuest(1000, 0));
  flow.OnSent(600);
  EXPECT_EQ(flow.Sendable(), 400u);
  flow.OnSent(400);
  EXPECT_EQ(flow.Sendable(), 0u);
  flow.OnHeader(FromGuest(1000, 600));
  EXPECT_EQ(flow.Sendable(), 600u);
  EXPECT_FALSE(flow.AllRead());
  flow.OnHeader(FromGuest(1000, 1000));
  EXPECT_TRUE(flow.AllRead());
}

TEST(FlowTest, CountersWrap) {
  Flow flow(kOwn);
  uint32_t forwarded = 0;
  for (int i = 0; i < 50000; ++i) {  // 50000 * 100000 > 2^32
    flow.OnHeader(FromGuest(1 << 20, forwarded));
    ASSERT_EQ(flow.Sendable(), 1u << 20);
    ASSERT_TRUE(flow.AllRead());
    flow.OnSent(100000);
    forwarded += 100000;
  }
}

TEST(FlowTest, LyingCountersStopOnlySending) {
  Flow flow(kOwn);
  flow.OnHeader(FromGuest(1000, 0));
  flow.OnSent(10);
  flow.OnHeader(FromGuest(1000, 11));  // has read what was never sent
  EXPECT_EQ(flow.Sendable(), 0u);
  flow.OnHeader(FromGuest(5, 0));  // a buffer smaller than what is under way
  EXPECT_EQ(flow.Sendable(), 0u);
  flow.OnHeader(FromGuest(UINT32_MAX, 10));
  EXPECT_EQ(flow.Sendable(), UINT32_MAX);
}

TEST(FlowTest, HoldsTheGuestToItsCredit) {
  Flow flow(1000);
  EXPECT_TRUE(flow.OnReceived(1000));
  EXPECT_FALSE(flow.OnReceived(1));
  flow.OnForwarded(1);
  EXPECT_TRUE(flow.OnReceived(1));
  EXPECT_FALSE(flow.OnReceived(UINT32_MAX));
  EXPECT_EQ(flow.buffered(), 1000u);
}

// A guest with the default buffer of 256 KiB never has more under way than that, so an update at,
// say, half of a larger buffer of ours would never come.
TEST(FlowTest, UpdateIsDueAtAQuarterOfTheSmallerBuffer) {
  for (uint32_t guest : {16384u, 262144u, 8u << 20}) {
    Flow flow(1 << 20);
    flow.OnHeader(FromGuest(guest, 0));
    Header h;
    flow.Stamp(&h);
    const uint32_t due = std::min(guest, 1u << 20) / 4;
    ASSERT_TRUE(flow.OnReceived(due));
    flow.OnForwarded(due - 1);
    EXPECT_FALSE(flow.UpdateDue()) << guest;
    flow.OnForwarded(1);
    EXPECT_TRUE(flow.UpdateDue()) << guest;
    flow.Stamp(&h);
    EXPECT_EQ(h.fwd_cnt, due);
    EXPECT_EQ(h.buf_alloc, 1u << 20);
    EXPECT_FALSE(flow.UpdateDue()) << guest;
  }
}

TEST(FlowTest, BoundsUnreadPackets) {
  Flow flow(kOwn);
  flow.OnHeader(FromGuest(262144, 0));
  EXPECT_EQ(flow.SendablePackets(), 64u);
  for (int i = 0; i < 64; ++i) {
    ASSERT_GT(flow.Sendable(), 0u);
    flow.OnSent(1);
  }
  EXPECT_EQ(flow.Sendable(), 0u) << "although 262080 bytes of credit are left";
  flow.OnHeader(FromGuest(262144, 10));
  EXPECT_EQ(flow.SendablePackets(), 10u);
  flow.OnHeader(FromGuest(262144, 64));
  EXPECT_EQ(flow.SendablePackets(), 64u);
}

TEST(FlowTest, AsksForCountersBeforeItHasToStop) {
  Flow flow(kOwn);
  flow.OnHeader(FromGuest(262144, 0));
  int asked = 0;
  for (int i = 0; i < 64; ++i) {
    flow.OnSent(1);
    if (!flow.WantsRequest()) continue;
    EXPECT_GE(flow.SendablePackets(), 16u);
    flow.OnRequested();
    ++asked;
  }
  EXPECT_EQ(asked, 1) << "no second time before the answer";
  flow.OnHeader(FromGuest(262144, 0, Op::kCreditUpdate));
  EXPECT_FALSE(flow.WantsRequest() && flow.Sendable() > 0);
}

TEST(FlowTest, TinyAndHugeBuffersHaveLimitsToo) {
  Flow flow(kOwn);
  flow.OnHeader(FromGuest(100, 0));
  EXPECT_EQ(flow.SendablePackets(), 8u);
  flow.OnHeader(FromGuest(UINT32_MAX, 0));
  EXPECT_EQ(flow.SendablePackets(), 8192u);
}

}  // namespace
}  // namespace smolvm::vsock
