// Numbers beside their floors. Whatever a number is divided by is taken in turns with it, and a
// number that beats its floor is not believed: then the two were not measured alike, or the floor
// is none.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace smolvm::bench {

// Milliseconds of the monotonic clock.
double Now();

// Milliseconds: the floor, what is measured, and the floor again.
struct Round {
  double floor_before;
  double measured;
  double floor_after;
};

// Medians of the rounds.
struct Compared {
  double floor = 0;     // ms
  double measured = 0;  // ms
  // What a round's measurement takes, divided by what its two floors take.
  double cost = 0;
  // The part of the rounds in which the measurement took less than either floor. Of three equals
  // each is the least in a third of the rounds, however much other work the machine has.
  double beaten = 0;
};
Compared Summarize(const std::vector<Round>& rounds);

// One more round, before the others, does not count, since whatever happens only once (first
// touches of memory, connections) is in it.
Compared InTurns(int rounds, const std::function<double()>& floor,
                 const std::function<double()>& measured);

// Why the cost is not to be believed: the floor is beaten, by more than a little, round after
// round. Empty otherwise.
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
  // With a floor. `known_faster`: why this one may beat its floor; null where nothing explains
  // that.
  void Add(const Row& row, const Compared& compared, const char* known_faster = nullptr);
  // A program's exit status: 1 when a row is not to be believed; which and why is then on stderr.
  int Finish(const char* program) const;

 private:
  std::string heading_;
  std::vector<std::string> not_believed_;
};

}  // namespace smolvm::bench
