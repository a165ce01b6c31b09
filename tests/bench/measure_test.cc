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
  EXPECT_EQ(compared.beaten, 0);
}

TEST(Summarize, ARoundIsDividedByItsOwnFloors) {
  // The machine slows down by ten in the second round: times differ, costs do not.
  const Compared compared = Summarize({{1, 2, 1}, {10, 20, 10}, {1, 2, 1}});
  EXPECT_EQ(compared.cost, 2);
  EXPECT_EQ(compared.measured, 2);
  EXPECT_EQ(compared.beaten, 0);
}

TEST(Summarize, AFloorIsBeatenWhenBothAre) {
  EXPECT_EQ(Summarize({{4, 3, 5}, {5, 3, 4}}).beaten, 1);
  EXPECT_EQ(Summarize({{4, 3, 2}, {2, 3, 4}, {2, 3, 2}, {4, 3, 4}}).beaten, 0.25);
}

TEST(NotBelieved, AboveTheFloorAndALittleBelow) {
  EXPECT_EQ(NotBelieved({.cost = 1.7, .beaten = 0}), "");
  EXPECT_EQ(NotBelieved({.cost = 1.0, .beaten = 1}), "");
  EXPECT_EQ(NotBelieved({.cost = 0.96, .beaten = 1}), "");
}

TEST(NotBelieved, FarBelow) {
  EXPECT_NE(NotBelieved({.cost = 0.3, .beaten = 1}), "");
  EXPECT_NE(NotBelieved({.cost = 0.9, .beaten = 0.9}), "");
}

TEST(NotBelieved, AMachineWithOtherWork) {
  // Floors differ more among themselves than from what is measured.
  EXPECT_EQ(NotBelieved({.cost = 0.8, .beaten = 0.6}), "");
}

TEST(Table, OneSuchRowIsAnError) {
  Table table;
  table.Add({.what = "without a floor"});
  table.Add({.what = "slower"}, {.cost = 1.2, .beaten = 0});
  EXPECT_EQ(table.Finish("test"), 0);
  table.Add({.what = "explained"}, {.cost = 0.5, .beaten = 1}, "it does less");
  EXPECT_EQ(table.Finish("test"), 0);
  table.Heading("same core");
  table.Add({.what = "faster"}, {.cost = 0.3, .beaten = 1});
  testing::internal::CaptureStderr();
  EXPECT_EQ(table.Finish("test"), 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("test: not to be believed: same core: faster: it takes 0.30"),
            std::string::npos)
      << said;
}

}  // namespace
}  // namespace smolvm::bench
