#pragma once

#include <chrono>
#include <string>

namespace smolvm::machine {

// One line on stderr once something has taken 2 s, another every 15 s: "smolvm: <doing> ... (17
// s)".
class Progress {
 public:
  explicit Progress(std::string doing) : doing_(std::move(doing)) {}
  // To be called a few times a second while the work goes on.
  void Tick();

 private:
  const std::string doing_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::chrono::seconds next_{2};
};

// One line on stderr, with our name in front.
void Say(const std::string& line);

}  // namespace smolvm::machine
