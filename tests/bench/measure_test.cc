// That a number which beats its floor is told from one that does not.
#include "tests/bench/measure.h"

#include <gtest/gtest.h>

#include <functional>

namespace smolvm::bench {
namespace {

// Gives the numbers one after the other, and the first of them again behind the last.
std::function<double()> Numbers(std::vector<double> numbers) {
  return [numbers, next = size_t{0}]() mutable { return numbers[next++ % numbers.size()]; };
}

TEST(InTurns, TheFirstRoundDoesNotCount) {
  const Compared compared = InTurns(1, Numbers({100, 100, 2, 2}), Numbers({900, 3}));
  EXPECT_EQ(compared.floor, 2);
  EXPECT_EQ(compared.measured, 3);
  EXPECT_EQ(compared.cost, 1.5);
  EXPECT_EQ(compared.noise, 0);
}

TEST(InTurns, ARoundIsDividedByItsOwnFloors) {
  // The machine slows down by ten in the second round that counts: times differ, costs do not.
  const Compared compared =
      InTurns(3, Numbers({1, 1, 1, 1, 10, 10, 1, 1}), Numbers({2, 2, 20, 2}));
  EXPECT_EQ(compared.cost, 2);
  EXPECT_EQ(compared.noise, 0);
}

TEST(InTurns, FloorsThatDifferAreNoise) {
  EXPECT_EQ(InTurns(3, Numbers({4, 5}), Numbers({4})).noise, 0.25);
  EXPECT_EQ(InTurns(3, Numbers({5, 4}), Numbers({4})).noise, 0.25);
}

TEST(NotBelieved, AboveTheFloorAndALittleBelow) {
  EXPECT_EQ(NotBelieved({.cost = 1.7}), "");
  EXPECT_EQ(NotBelieved({.cost = 1.0}), "");
  EXPECT_EQ(NotBelieved({.cost = 0.96}), "");
}

TEST(NotBelieved, FarBelow) {
  EXPECT_NE(NotBelieved({.cost = 0.3}), "");
  EXPECT_NE(NotBelieved({.cost = 0.9}), "");
}

TEST(NotBelieved, AMachineWithOtherWork) {
  EXPECT_EQ(NotBelieved({.cost = 0.85, .noise = 0.2}), "");
  EXPECT_NE(NotBelieved({.cost = 0.75, .noise = 0.2}), "");
}

TEST(Table, OneSuchRowIsAnError) {
  Table table;
  table.Add({.what = "without a floor"});
  table.Add({.what = "slower"}, {.cost = 1.2});
  EXPECT_EQ(table.Finish("test"), 0);
  table.Add({.what = "explained"}, {.cost = 0.5}, "it does less");
  EXPECT_EQ(table.Finish("test"), 0);
  table.Heading("same core");
  table.Add({.what = "faster"}, {.cost = 0.3});
  testing::internal::CaptureStderr();
  EXPECT_EQ(table.Finish("test"), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("test: not to be believed: same core: faster: it takes 0.30"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace smolvm::bench
