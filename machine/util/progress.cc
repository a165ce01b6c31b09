#include "machine/util/progress.h"

#include <fmt/format.h>

#include <cstdio>

namespace smolvm::machine {

void Say(const std::string& line) {
  const std::string text = "smolvm: " + line + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void Progress::Tick() {
  if (doing_.empty()) return;
  const auto spent =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_);
  if (spent < next_) return;
  Say(next_.count() == 2 ? doing_ + " ..." : fmt::format("{} ... ({} s)", doing_, spent.count()));
  next_ = spent + std::chrono::seconds(15);
}

}  // namespace smolvm::machine
