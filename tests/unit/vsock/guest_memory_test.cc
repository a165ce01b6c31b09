#include "host-daemon/vsock/guest_memory.h"

#include <gtest/gtest.h>

#include "tests/unit/vsock/guest_ram.h"

namespace smolvm::vsock {
namespace {

MemoryRegion Region(const GuestRam& ram, uint64_t guest, uint64_t size, uint64_t user,
                    uint64_t offset) {
  return {guest, size, user, offset, UniqueFd(dup(ram.fd()))};
}

bool Maps(MemoryRegion one, MemoryRegion two = {}) {
  std::vector<MemoryRegion> regions;
  regions.push_back(std::move(one));
  if (two.size != 0) regions.push_back(std::move(two));
  GuestMemory memory;
  std::string error;
  const bool ok = memory.Map(std::move(regions), &error);
  EXPECT_EQ(ok, error.empty()) << error;
  return ok;
}

TEST(GuestMemoryTest, TranslatesWithinAndAcrossAdjacentRegions) {
  GuestRam ram;
  std::vector<MemoryRegion> regions;
  regions.push_back(Region(ram, 0x1000, 0x1000, 0x10000, 0));
  regions.push_back(Region(ram, 0x2000, 0x1000, 0x90000, 0x5000));  // adjacent to the guest only
  GuestMemory memory;
  std::string error;
  ASSERT_TRUE(memory.Map(std::move(regions), &error)) << error;
  ram.At(0xfff)[0] = 'a';
  ram.At(0x5000)[0] = 'b';
  std::vector<iovec> iov;
  ASSERT_TRUE(memory.Translate(0x1fff, 2, &iov));
  ASSERT_EQ(iov.size(), 2u);
  EXPECT_EQ(*static_cast<char*>(iov[0].iov_base), 'a');
  EXPECT_EQ(*static_cast<char*>(iov[1].iov_base), 'b');
  EXPECT_EQ(memory.Contiguous(0x1fff, 2), nullptr);
  EXPECT_EQ(*memory.Contiguous(0x2000, 0x1000), 'b');
  EXPECT_EQ(*memory.FromUser(0x10fff, 1), 'a');
  EXPECT_EQ(memory.FromUser(0x10fff, 2), nullptr);
  EXPECT_EQ(memory.FromUser(0x90001, UINT64_MAX), nullptr);
  iov.clear();
  EXPECT_FALSE(memory.Translate(0xfff, 2, &iov));
  EXPECT_FALSE(memory.Translate(0x2fff, 2, &iov));
  EXPECT_TRUE(memory.Translate(0x123456, 0, &iov)) << "nothing is anywhere";
}

TEST(GuestMemoryTest, OffsetsNeedNotBePageAligned) {
  GuestRam ram;
  std::vector<MemoryRegion> regions;
  regions.push_back(Region(ram, 0, 0x100, 0x10000, 0x1234));
  GuestMemory memory;
  std::string error;
  ASSERT_TRUE(memory.Map(std::move(regions), &error)) << error;
  ram.At(0x1234)[0] = 'x';
  EXPECT_EQ(*memory.Contiguous(0, 1), 'x');
}

TEST(GuestMemoryTest, RefusesImpossibleRegions) {
  GuestRam ram;
  const uint64_t file = 2 * GuestRam::kHalf;
  EXPECT_TRUE(Maps(Region(ram, 0, file, 0, 0)));
  EXPECT_FALSE(Maps(Region(ram, 0, 0, 0, 0))) << "empty";
  EXPECT_FALSE(Maps(Region(ram, 0, file + 1, 0, 0))) << "longer than the file";
  EXPECT_FALSE(Maps(Region(ram, 0, file, 0, 4096))) << "past its end";
  EXPECT_FALSE(Maps(Region(ram, UINT64_MAX, 4096, 0, 0))) << "guest address wraps";
  EXPECT_FALSE(Maps(Region(ram, 0, 4096, UINT64_MAX, 0))) << "user address wraps";
  EXPECT_FALSE(Maps(Region(ram, 0, 4096, 0, UINT64_MAX))) << "offset wraps";
  EXPECT_FALSE(Maps({0, 4096, 0, 0, UniqueFd()})) << "no descriptor";
  EXPECT_FALSE(Maps(Region(ram, 0, 8192, 0, 0), Region(ram, 4096, 8192, 1 << 20, 0))) << "overlap";
  EXPECT_FALSE(Maps(Region(ram, 4096, 4096, 0, 0), Region(ram, 0, 16384, 1 << 20, 0))) << "within";
}

}  // namespace
}  // namespace smolvm::vsock
