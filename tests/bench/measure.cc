#include "tests/bench/measure.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace smolvm::bench {
namespace {

// What the same thing differs by when nothing else runs, from one of its runs to the next.
constexpr double kLeastNoise = 0.05;

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

Compared InTurns(int rounds, const std::function<double()>& floor,
                 const std::function<double()>& measured) {
  std::vector<double> floors, times, costs, noises;
  for (int round = 0; round <= rounds; ++round) {
    const double before = floor(), time = measured(), after = floor();
    if (round == 0) continue;
    floors.push_back((before + after) / 2);
    times.push_back(time);
    costs.push_back(time / floors.back());
    noises.push_back(std::fabs(before - after) / std::min(before, after));
  }
  return {Median(floors), Median(times), Median(costs), Median(noises)};
}

std::string NotBelieved(const Compared& compared) {
  const double allowed = std::max(kLeastNoise, compared.noise);
  if (compared.cost >= 1 - allowed) return "";
  return fmt::format(
      "it takes {:.2f} of its floor's time, where floors differ by {:.2f} among themselves: the two "
      "were not measured alike, or the floor does more than it must",
      compared.cost, compared.noise);
}

Table::Table() {
  fmt::print("{:<46} {:>14} {:>14} {:>7}  {:<20}\n", "what", "measured", "floor", "ratio", "target");
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
