// Numbers beside their floors. Whatever a number is divided by is taken in turns with it, and a
// number that beats its floor is not believed: then the two were not measured alike, or the floor is
// none.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace smolvm::bench {

// Milliseconds of the monotonic clock.
double Now();

// Milliseconds; the medians of the rounds.
struct Compared {
  double floor = 0;
  double measured = 0;
  // The median of what a round's measurement takes, divided by what the floors around it take.
  double cost = 0;
  // How far the two floors of a round lie apart, as a part of the smaller; the median.
  double noise = 0;
};

// Each round is the floor, what is measured, and the floor again; one more round before them does
// not count, since whatever happens only once (first touches of memory, connections) is in it.
Compared InTurns(int rounds, const std::function<double()>& floor,
                 const std::function<double()>& measured);

// Why a cost is too low to be believed; empty when it is not. Never less than a few per cent is held
// against a number, and never less than what floors differ by among themselves.
std::string NotBelieved(const Compared& compared);

// One line a measurement.
class Table {
 public:
  struct Row {
    std::string what, measured, floor;
    double ratio = 0;    // 0: there is no floor
    std::string target;  // empty: none
    bool met = true;
  };

  Table();
  void Heading(const std::string& text);
  void Add(const Row& row);
  // With a floor. `known_faster`: why this one may beat its floor; null where nothing explains that.
  void Add(const Row& row, const Compared& compared, const char* known_faster = nullptr);
  // A program's exit status: 1 when a row is not to be believed; which and why is then on stderr.
  int Finish(const char* program) const;

 private:
  std::string heading_;
  std::vector<std::string> not_believed_;
};

}  // namespace smolvm::bench
