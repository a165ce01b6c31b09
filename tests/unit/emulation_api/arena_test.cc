// The arena and the streams by themselves, without the API.
#include "host-daemon/emulation/device/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "host-daemon/emulation/device/memory_map.h"

namespace smolvm::emulation {
namespace {

// One for the process: the address range can be had once.
Arena& TheArena() {
  static Arena* arena = Arena::Create(size_t{16} << 20);
  return *arena;
}

TEST(ArenaTest, IsWhereItSays) {
  ASSERT_NE(&TheArena(), nullptr);
  EXPECT_EQ(TheArena().base(), kArenaBase);
  EXPECT_EQ(TheArena().scratch_base(), kArenaBase + (size_t{16} << 20));
  EXPECT_EQ(Arena::Create(1 << 20), nullptr);  // taken
}

TEST(ArenaTest, AllocatesAlignedAndFindsBack) {
  Arena& arena = TheArena();
  const uintptr_t plain = arena.Allocate(100), aligned = arena.Allocate(5000, 1 << 20);
  EXPECT_EQ(plain % kAllocationAlignment, 0u);
  EXPECT_EQ(aligned % (1 << 20), 0u);
  EXPECT_EQ(arena.Find(plain + 99)->base, plain);
  EXPECT_FALSE(arena.Find(plain + 100));
  EXPECT_TRUE(arena.Owns(aligned, 5000));
  EXPECT_FALSE(arena.Owns(aligned, 5001));
  EXPECT_FALSE(arena.Owns(aligned + 1, SIZE_MAX));
  EXPECT_FALSE(arena.Free(plain + 1));
  EXPECT_TRUE(arena.Free(plain));
  EXPECT_TRUE(arena.Free(aligned));
  EXPECT_EQ(arena.free_bytes(), arena.device_bytes());
  EXPECT_EQ(arena.Allocate(arena.device_bytes() + 1), 0u);
}

TEST(ArenaTest, HolesJoinAgain) {
  Arena& arena = TheArena();
  std::mt19937 random(1);
  std::vector<std::pair<uintptr_t, size_t>> live;
  for (int i = 0; i < 300; ++i) {
    const size_t bytes = 1 + random() % (400 << 10);
    if (const uintptr_t base = arena.Allocate(bytes)) {
      const auto* first = reinterpret_cast<const char*>(base);
      ASSERT_EQ(first[0], 0);
      ASSERT_EQ(first[bytes - 1], 0);
      std::memset(reinterpret_cast<void*>(base), 0xff, bytes);
      live.emplace_back(base, bytes);
    }
    if (live.size() > 20 || (i % 3 == 0 && !live.empty())) {
      std::swap(live[random() % live.size()], live.back());
      ASSERT_TRUE(arena.Free(live.back().first));
      live.pop_back();
    }
  }
  for (const auto& [base, bytes] : live) ASSERT_TRUE(arena.Free(base));
  const uintptr_t whole = arena.Allocate(arena.device_bytes());
  EXPECT_EQ(whole, kArenaBase);
  EXPECT_TRUE(arena.Free(whole));
}

// Blocks that can hold a huge page begin at one, as long as that keeps no memory from being used.
TEST(ArenaTest, LargeBlocksBeginAtAHugePage) {
  constexpr size_t kHuge = size_t{2} << 20;
  Arena& arena = TheArena();
  const uintptr_t small = arena.Allocate(100);
  const uintptr_t large = arena.Allocate(kHuge + 1), another = arena.Allocate(kHuge);
  EXPECT_EQ(large % kHuge, 0u);
  EXPECT_EQ(another % kHuge, 0u);
  EXPECT_LT(arena.Allocate(100), large);  // what was skipped is used
  EXPECT_TRUE(arena.Free(small + 4096));
  EXPECT_TRUE(arena.Free(large));
  EXPECT_TRUE(arena.Free(another));
  const uintptr_t rest = arena.Allocate(arena.free_bytes());
  EXPECT_NE(rest, 0u);
  EXPECT_NE(rest % kHuge, 0u);
  EXPECT_TRUE(arena.Free(rest));
  EXPECT_TRUE(arena.Free(small));
  EXPECT_EQ(arena.free_bytes(), arena.device_bytes());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(ArenaDeathTest, FreedPagesCannotBeTouched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        const uintptr_t base = TheArena().Allocate(100);
        TheArena().Free(base);
        *reinterpret_cast<volatile char*>(base) = 1;
      },
      "");
}
#endif

TEST(MemoryMapTest, RefusesOverlapsAndKeepsReferences) {
  MemoryMap map;
  int released = 0;
  const auto add = [&](uintptr_t base, size_t size) {
    auto region = std::make_shared<Region>(Region::Kind::kRegistered, base, size);
    const bool added = map.Add(region);
    if (added) region->release = [&released] { ++released; };
    return added;
  };
  EXPECT_TRUE(add(1000, 100));
  EXPECT_FALSE(add(1099, 1));
  EXPECT_FALSE(add(900, 101));
  EXPECT_FALSE(add(900, 1000));
  EXPECT_TRUE(add(1100, 10));
  EXPECT_TRUE(add(990, 10));
  EXPECT_EQ(map.Find(1099)->base, 1000u);
  EXPECT_EQ(map.Find(1110), nullptr);
  EXPECT_EQ(map.Find(989), nullptr);
  auto held = map.Find(1000);
  EXPECT_EQ(map.Remove(1001), nullptr);
  EXPECT_NE(map.Remove(1000), nullptr);
  EXPECT_EQ(released, 0);
  held = nullptr;
  EXPECT_EQ(released, 1);
  map.RemoveIf([](const Region&) { return true; });
  EXPECT_EQ(released, 3);
}

}  // namespace
}  // namespace smolvm::emulation
