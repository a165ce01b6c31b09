#include "protocol/base/log_limit.h"

#include <gtest/gtest.h>

namespace smolvm {
namespace {

using std::chrono::seconds;

TEST(LogLimitTest, ABurstAndThenARate) {
  LogLimit limit(3, 0.5);
  const LogLimit::Clock::time_point now = LogLimit::Clock::now();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.Allow(now));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.Allow(now));
  EXPECT_EQ(limit.TakeSuppressed(), 5u);
  EXPECT_EQ(limit.TakeSuppressed(), 0u);
  EXPECT_FALSE(limit.Allow(now + seconds(1)));
  EXPECT_TRUE(limit.Allow(now + seconds(2)));
  EXPECT_FALSE(limit.Allow(now + seconds(2)));
}

TEST(LogLimitTest, QuietYearsAllowNoMoreThanABurst) {
  LogLimit limit(3, 0.5);
  const LogLimit::Clock::time_point later = LogLimit::Clock::now() + seconds(100'000'000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limit.Allow(later));
  EXPECT_FALSE(limit.Allow(later));
}

}  // namespace
}  // namespace smolvm
