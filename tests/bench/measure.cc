#include "tests/bench/measure.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

namespace smolvm::bench {
namespace {

// What the same thing differs by when nothing else runs, from one of its runs to the next.
constexpr double kNoise = 0.05;
// Of ten rounds one may be otherwise: another process ran meanwhile.
constexpr double kBeatenRounds = 0.9;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

double Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

Compared Summarize(const std::vector<Round>& rounds) {
  std::vector<double> floors, times, costs;
  size_t beaten = 0;
  for (const Round& round : rounds) {
    floors.push_back((round.floor_before + round.floor_after) / 2);
    times.push_back(round.measured);
    costs.push_back(round.measured / floors.back());
    if (round.measured < std::min(round.floor_before, round.floor_after)) ++beaten;
  }
  return {Median(floors), Median(times), Median(costs),
          static_cast<double>(beaten) / static_cast<double>(rounds.size())};
}

Compared InTurns(int rounds, const std::function<double()>& floor,
                 const std::function<double()>& measured) {
  std::vector<Round> all;
  for (int i = 0; i <= rounds; ++i) {
    Round round{};
    round.floor_before = floor();
    round.measured = measured();
    round.floor_after = floor();
    if (i > 0) all.push_back(round);
  }
  return Summarize(all);
}

std::string NotBelieved(const Compared& compared) {
  if (compared.cost >= 1 - kNoise || compared.beaten < kBeatenRounds) return "";
  return fmt::format(
      "it takes {:.2f} of its floor's time, and less than either floor in {:.0f} % of the rounds: "
      "the "
      "two were not measured alike, or the floor does more than it must",
      compared.cost, compared.beaten * 100);
}

Table::Table() {
  fmt::print("{:<46} {:>14} {:>14} {:>7}  {:<20}\n", "what", "measured", "floor", "ratio",
             "target");
}

void Table::Heading(const std::string& text) {
  heading_ = text;
  fmt::print("-- {}\n", text);
}

void Table::Add(const Row& row) {
  const std::string ratio = row.ratio == 0 ? "-" : fmt::format("{:.2f}", row.ratio);
  const char* verdict = row.target.empty() ? "" : row.met ? "ok" : "miss";
  fmt::print("{:<46} {:>14} {:>14} {:>7}  {:<20} {}\n", row.what, row.measured, row.floor, ratio,
             row.target, verdict);
  fflush(stdout);
}

void Table::Add(const Row& row, const Compared& compared, const char* known_faster) {
  Add(row);
  const std::string why = NotBelieved(compared);
  if (why.empty()) return;
  if (known_faster != nullptr) {
    fmt::print("{:<46} below its floor: {}\n", "", known_faster);
    return;
  }
  fmt::print("{:<46} NOT TO BE BELIEVED\n", "");
  const std::string where = heading_.empty() ? "" : heading_ + ": ";
  not_believed_.push_back(fmt::format("{}{}: {}", where, row.what, why));
}

int Table::Finish(const char* program) const {
  for (const std::string& why : not_believed_) {
    fmt::print(stderr, "{}: not to be believed: {}\n", program, why);
  }
  return not_believed_.empty() ? 0 : 1;
}

}  // namespace smolvm::bench
