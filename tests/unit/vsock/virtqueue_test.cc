#include "host-daemon/vsock/virtqueue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/vsock/guest_ram.h"

namespace smolvm::vsock {
namespace {

using Pop = Virtqueue::PopResult;
using ::testing::HasSubstr;

class VirtqueueTest : public ::testing::Test {
 protected:
  VirtqueueTest() : ring_(&ram_, 8) {
    std::string error;
    EXPECT_TRUE(memory_.Map(ram_.Regions(), &error)) << error;
    EXPECT_TRUE(queue_.SetSize(8));
    queue_.SetFeatures(true, true);
    queue_.SetAddresses(GuestRam::UserAddress(ring_.desc_addr()),
                        GuestRam::UserAddress(ring_.avail_addr()),
                        GuestRam::UserAddress(ring_.used_addr()));
    EXPECT_TRUE(queue_.Resolve(memory_, &error)) << error;
  }
  void ExpectBroken(const char* why) {
    EXPECT_EQ(queue_.Pop(&chain_), Pop::kBroken);
    EXPECT_TRUE(queue_.broken());
    EXPECT_THAT(queue_.error(), HasSubstr(why));
    EXPECT_EQ(queue_.Pop(&chain_), Pop::kBroken) << "broken is for good";
  }

  GuestRam ram_;
  DriverRing ring_;
  GuestMemory memory_;
  Virtqueue queue_;
  Chain chain_;
};

TEST_F(VirtqueueTest, EmptyRingHasNothing) {
  EXPECT_EQ(queue_.Pop(&chain_), Pop::kEmpty);
  EXPECT_FALSE(queue_.Touched());
  EXPECT_FALSE(Virtqueue().Touched()) << "a ring whose memory is not known yet tells nothing";
}

TEST_F(VirtqueueTest, WalksAChainOverDescriptorsAndRegions) {
  const uint64_t low = ram_.Alloc(64), high = ram_.AllocHigh(64);
  std::memcpy(ram_.At(low), "low", 3);
  std::memcpy(ram_.At(high), "high", 4);
  const uint16_t head = ring_.Add({{low, 3}, {high, 4}, {low, 10, true}});
  EXPECT_TRUE(queue_.Touched());
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  EXPECT_EQ(chain_.head, head);
  EXPECT_EQ(chain_.readable_bytes, 7u);
  EXPECT_EQ(chain_.writable_bytes, 10u);
  ASSERT_EQ(chain_.readable.size(), 2u);
  EXPECT_EQ(std::memcmp(chain_.readable[0].iov_base, "low", 3), 0);
  EXPECT_EQ(std::memcmp(chain_.readable[1].iov_base, "high", 4), 0);
  EXPECT_EQ(queue_.Pop(&chain_), Pop::kEmpty);
}

TEST_F(VirtqueueTest, WalksIndirectTablesAlsoBehindDirectDescriptors) {
  const uint64_t table = ram_.AllocHigh(16 * 20), data = ram_.Alloc(64);
  std::vector<Buffer> many(20, Buffer{data, 2});
  ring_.AddIndirect(table, many);  // more than the ring has descriptors
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  EXPECT_EQ(chain_.readable_bytes, 40u);

  const uint16_t head = ring_.Add({{data, 1}, {data, 1}});
  *ring_.desc(ring_.desc(head)->next) = {table, 16 * 20, kIndirect, 0};
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  EXPECT_EQ(chain_.readable_bytes, 41u);
}

TEST_F(VirtqueueTest, PushShowsTheDriverHeadAndLength) {
  const uint16_t head = ring_.Add({{ram_.Alloc(64), 64, true}});
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  queue_.Push(head, 44);
  const auto used = ring_.TakeUsed();
  ASSERT_TRUE(used);
  EXPECT_EQ(used->head, head);
  EXPECT_EQ(used->len, 44u);
}

TEST_F(VirtqueueTest, UnpopGivesTheSameChainAgain) {
  const uint64_t data = ram_.Alloc(64);
  const uint16_t first = ring_.Add({{data, 1}}), second = ring_.Add({{data, 2}});
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  EXPECT_EQ(chain_.head, second);
  queue_.Unpop(2);
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  EXPECT_EQ(chain_.head, first);
}

TEST_F(VirtqueueTest, IndicesWrap) {
  const uint64_t data = ram_.Alloc(64);
  for (int i = 0; i < 70000; ++i) {
    ring_.Add({{data, 1}});
    ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain) << i;
    queue_.Push(chain_.head, 0);
    ASSERT_TRUE(ring_.TakeUsed()) << i;
  }
}

TEST_F(VirtqueueTest, ResumesAtABase) {
  std::string error;
  queue_.Unresolve();
  queue_.SetBase(65535);
  *ring_.avail_idx() = 65535;
  ASSERT_TRUE(queue_.Resolve(memory_, &error));
  EXPECT_EQ(queue_.Pop(&chain_), Pop::kEmpty);
  EXPECT_EQ(queue_.base(), 65535);
}

// --- Interrupts and kicks

TEST_F(VirtqueueTest, EventIdxInterruptsOnlyWhenAsked) {
  const uint64_t data = ram_.Alloc(64);
  *ring_.used_event() = 1;  // "when the second is used"
  for (int i = 0; i < 3; ++i) ring_.Add({{data, 1}});
  EXPECT_FALSE(queue_.ShouldNotify()) << "nothing was pushed";
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  queue_.Push(chain_.head, 0);
  EXPECT_FALSE(queue_.ShouldNotify());
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  queue_.Push(chain_.head, 0);
  EXPECT_TRUE(queue_.ShouldNotify());
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  queue_.Push(chain_.head, 0);
  EXPECT_FALSE(queue_.ShouldNotify());
}

TEST_F(VirtqueueTest, WithoutEventIdxTheFlagDecides) {
  queue_.SetFeatures(false, true);
  ring_.Add({{ram_.Alloc(8), 1}});
  ring_.Add({{ram_.Alloc(8), 1}});
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  queue_.Push(chain_.head, 0);
  *ring_.avail_flags() = 1;
  EXPECT_FALSE(queue_.ShouldNotify());
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  queue_.Push(chain_.head, 0);
  *ring_.avail_flags() = 0;
  EXPECT_TRUE(queue_.ShouldNotify());
}

TEST_F(VirtqueueTest, KicksAreAskedForAndDeclined) {
  EXPECT_FALSE(queue_.EnableKicks());
  EXPECT_EQ(*ring_.avail_event(), 0);
  ring_.Add({{ram_.Alloc(8), 1}});
  EXPECT_TRUE(queue_.EnableKicks()) << "there already: no kick will come";
  queue_.SetFeatures(false, true);
  queue_.DisableKicks();
  EXPECT_EQ(*ring_.used_flags(), 1);
  queue_.EnableKicks();
  EXPECT_EQ(*ring_.used_flags(), 0);
}

// --- Hostile drivers

TEST_F(VirtqueueTest, LoopOfDescriptors) {
  const uint64_t data = ram_.Alloc(64);
  *ring_.desc(0) = {data, 1, kNext, 1};
  *ring_.desc(1) = {data, 1, kNext, 0};
  ring_.AddRaw(0);
  ExpectBroken("loop");
}

TEST_F(VirtqueueTest, LoopInIndirectTable) {
  const uint64_t table = ram_.Alloc(64), data = ram_.Alloc(64);
  ring_.AddIndirect(table, {{data, 1}, {data, 1}});
  auto* entries = reinterpret_cast<DriverRing::Desc*>(ram_.At(table));
  entries[1].flags = kNext;
  entries[1].next = 1;
  ExpectBroken("loop");
}

TEST_F(VirtqueueTest, HeadOutOfRange) {
  ring_.AddRaw(8);
  ExpectBroken("descriptor 8 of 8");
}

TEST_F(VirtqueueTest, NextOutOfRange) {
  *ring_.desc(0) = {ram_.Alloc(64), 1, kNext, 65535};
  ring_.AddRaw(0);
  ExpectBroken("descriptor 65535 of 8");
}

TEST_F(VirtqueueTest, IndirectNextOutOfRange) {
  const uint64_t table = ram_.Alloc(64), data = ram_.Alloc(64);
  ring_.AddIndirect(table, {{data, 1}, {data, 1}});
  reinterpret_cast<DriverRing::Desc*>(ram_.At(table))[0].next = 2;
  ExpectBroken("indirect descriptor 2 of 2");
}

TEST_F(VirtqueueTest, NestedIndirect) {
  const uint64_t table = ram_.Alloc(64), data = ram_.Alloc(64);
  ring_.AddIndirect(table, {{data, 1}});
  reinterpret_cast<DriverRing::Desc*>(ram_.At(table))[0].flags = kIndirect;
  ExpectBroken("in an indirect table");
}

TEST_F(VirtqueueTest, IndirectThatWasNotNegotiated) {
  queue_.SetFeatures(true, false);
  ring_.AddIndirect(ram_.Alloc(64), {{ram_.Alloc(64), 1}});
  ExpectBroken("not negotiated");
}

TEST_F(VirtqueueTest, IndirectWithSuccessor) {
  *ring_.desc(0) = {ram_.Alloc(64), 16, kIndirect | kNext, 1};
  ring_.AddRaw(0);
  ExpectBroken("successor");
}

TEST_F(VirtqueueTest, IndirectTablesOfImpossibleSizes) {
  for (uint32_t size : {0u, 8u, 17u, 16u * (kMaxIndirectDescriptors + 1), 0xffff'fff0u}) {
    std::string error;
    ASSERT_TRUE(queue_.Resolve(memory_, &error));
    *ring_.desc(0) = {ram_.Alloc(64), size, kIndirect, 0};
    ring_.AddRaw(0);
    ExpectBroken("an indirect table of");
  }
}

TEST_F(VirtqueueTest, AddressesOutsideMemory) {
  const struct {
    uint64_t addr;
    uint32_t len;
  } kCases[] = {
      {GuestRam::kHalf, 1},                             // behind the low region
      {GuestRam::kHalf - 1, 2},                         // half out of it
      {GuestRam::kHighGuest - 1, 2},                    // half into the high one
      {GuestRam::kHighGuest + GuestRam::kHalf - 4, 5},  //
      {UINT64_MAX, 1},
      {UINT64_MAX - 3, 8},  // wraps
      {0, UINT32_MAX},
      {GuestRam::kLowUser, 1},  // an address of the front end is none of the guest
  };
  for (const auto& c : kCases) {
    std::string error;
    ASSERT_TRUE(queue_.Resolve(memory_, &error));
    *ring_.desc(0) = {c.addr, c.len, 0, 0};
    ring_.AddRaw(0);
    ExpectBroken("outside guest memory");
  }
}

TEST_F(VirtqueueTest, IndirectTableOutsideMemory) {
  *ring_.desc(0) = {GuestRam::kHalf - 8, 16, kIndirect, 0};
  ring_.AddRaw(0);
  ExpectBroken("an indirect table outside guest memory");
}

TEST_F(VirtqueueTest, ReadableBehindWritable) {
  const uint64_t data = ram_.Alloc(64);
  ring_.Add({{data, 1, true}, {data, 1}});
  ExpectBroken("behind a writable");
}

TEST_F(VirtqueueTest, MoreAvailableThanTheRingHolds) {
  *ring_.avail_idx() = 9;
  ExpectBroken("9 buffers available");
}

TEST_F(VirtqueueTest, AvailableIndexThatGoesBack) {
  *ring_.avail_idx() = 65535;
  ExpectBroken("65535 buffers available");
}

TEST_F(VirtqueueTest, ZeroLengthDescriptorsAreNothing) {
  ring_.Add({{UINT64_MAX, 0}, {ram_.Alloc(8), 3}});
  ASSERT_EQ(queue_.Pop(&chain_), Pop::kChain);
  EXPECT_EQ(chain_.readable_bytes, 3u);
  EXPECT_EQ(chain_.readable.size(), 1u);
}

// --- Configuration

TEST_F(VirtqueueTest, Sizes) {
  Virtqueue q;
  for (uint32_t bad : {0u, 3u, 100u, 2048u, 65536u, 0x8000'0000u})
    EXPECT_FALSE(q.SetSize(bad)) << bad;
  for (uint32_t good : {1u, 2u, 128u, 1024u}) EXPECT_TRUE(q.SetSize(good)) << good;
}

TEST_F(VirtqueueTest, RingsHaveToBeAlignedAndInside) {
  const uint64_t low = GuestRam::kLowUser + 4096;
  const uint64_t end = GuestRam::kLowUser + GuestRam::kHalf;
  const uint64_t kCases[][3] = {
      {low + 8, low + 1024, low + 2048},  // descriptors not 16-aligned
      {low, low + 1025, low + 2048},      // available ring odd
      {low, low + 1024, low + 2050},      // used ring not 4-aligned
      {end - 16, low + 1024, low + 2048},
      {low, end - 16, low + 2048},
      {low, low + 1024, end - 16},
      {0, low + 1024, low + 2048},
      {UINT64_MAX - 15, low + 1024, low + 2048},
  };
  for (const auto& c : kCases) {
    Virtqueue q;
    q.SetSize(8);
    q.SetAddresses(c[0], c[1], c[2]);
    std::string error;
    EXPECT_FALSE(q.Resolve(memory_, &error));
    EXPECT_FALSE(q.resolved());
    EXPECT_EQ(q.Pop(&chain_), Pop::kBroken);
    EXPECT_FALSE(error.empty());
  }
  Virtqueue unsized;
  std::string error;
  EXPECT_FALSE(unsized.Resolve(memory_, &error));
}

}  // namespace
}  // namespace smolvm::vsock
