#include "host-daemon/dispatch/copy_extent.h"

#include <gtest/gtest.h>

#include <vector>

namespace smolvm::dispatch {
namespace {

constexpr size_t kMost = SIZE_MAX;

TEST(PackedBytes, AreExactOrRefused) {
  uint64_t bytes = 1;
  EXPECT_TRUE(PackedBytes(3, 5, 7, &bytes));
  EXPECT_EQ(bytes, 105u);
  EXPECT_TRUE(PackedBytes(kMost, 1, 1, &bytes));
  EXPECT_EQ(bytes, kMost);
  for (const auto& [w, h, d] : {std::tuple(size_t{0}, kMost, kMost),
                                {kMost, size_t{0}, kMost},
                                {kMost, kMost, size_t{0}}}) {
    EXPECT_TRUE(PackedBytes(w, h, d, &bytes));
    EXPECT_EQ(bytes, 0u);
  }
  // 2^128 bytes, which 128 bits hold as 0: an attack's.
  EXPECT_FALSE(PackedBytes(size_t{1} << 10, size_t{1} << 59, size_t{1} << 59, &bytes));
  EXPECT_FALSE(PackedBytes(size_t{1} << 32, size_t{1} << 32, 1, &bytes));
  EXPECT_FALSE(PackedBytes(1, size_t{1} << 32, size_t{1} << 32, &bytes));
  EXPECT_FALSE(PackedBytes(kMost, 2, 1, &bytes));
  EXPECT_FALSE(PackedBytes(kMost, kMost, kMost, &bytes));
}

TEST(EndOf, IsExactOrRefused) {
  uint64_t end = 0;
  EXPECT_TRUE(EndOf({.pitch = 10, .height = 4, .x = 1, .y = 2, .z = 3}, 5, 2, 2, &end));
  EXPECT_EQ(end, 1u + 5 + (2 + 1) * 10 + (3 + 1) * 40);
  EXPECT_TRUE(EndOf({.x = kMost - 1}, 1, 1, 1, &end));
  EXPECT_EQ(end, kMost);
  const std::vector<CopySide> beyond = {
      {.x = kMost},
      {.pitch = size_t{1} << 32, .height = size_t{1} << 32},
      {.pitch = 1, .height = 1, .y = kMost},
      {.pitch = 1, .height = 1, .z = kMost},
      {.pitch = 2, .height = 1, .y = size_t{1} << 63},
      {.pitch = 1, .height = size_t{1} << 32, .z = size_t{1} << 32},
      {.pitch = kMost, .height = 1, .x = 1, .y = 1},
      {.pitch = size_t{1} << 59, .height = size_t{1} << 59, .z = size_t{1} << 10},
  };
  for (size_t k = 0; k < beyond.size(); ++k) EXPECT_FALSE(EndOf(beyond[k], 1, 2, 2, &end)) << k;
  // A height of 0 slices lie on one another.
  EXPECT_TRUE(EndOf({.pitch = 8, .height = 0, .z = kMost - 1}, 8, 1, 1, &end));
  EXPECT_EQ(end, 8u);
}

}  // namespace
}  // namespace smolvm::dispatch
