#include "protocol/base/unique_fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>

namespace smolvm {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }
UniqueFd Null() { return UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)); }

TEST(UniqueFdTest, OwnsOneDescriptor) {
  UniqueFd fd = Null();
  ASSERT_TRUE(fd.valid());
  const int number = fd.get();
  UniqueFd moved = std::move(fd);
  EXPECT_TRUE(IsOpen(number));
  moved.reset();
  EXPECT_FALSE(moved);
  EXPECT_FALSE(IsOpen(number));
}

TEST(UniqueFdTest, AssignmentClosesWhatWasThere) {
  UniqueFd fd = Null();
  const int first = fd.get();
  UniqueFd other = Null();
  const int second = other.get();
  fd = std::move(other);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(fd.get(), second);
  EXPECT_EQ(fd.release(), second);
  EXPECT_TRUE(IsOpen(second));
  close(second);
}

}  // namespace
}  // namespace smolvm
