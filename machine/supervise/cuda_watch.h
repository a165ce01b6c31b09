// What a supervisor does about a CUDA daemon that dies while its machine runs: starts it again, so
// that new programs in the machine get CUDA; the dead one's programs have failed.
//
// Started again after 0.1 s, each time three times later; given up after kMostRestarts in a row.
// One that served for kHealthy ends the row.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace smolvm::machine {

// In a machine's folder while its CUDA daemon does not serve: one of the words below.
inline constexpr char kCudaStateFile[] = "cuda-daemon.state";
inline constexpr char kCudaRestarting[] = "restarting";
inline constexpr char kCudaFailed[] = "failed";
// The word, or "" while the daemon serves.
std::string ReadCudaState(const std::filesystem::path& folder);

// Threads: one only.
class CudaWatch {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMostRestarts = 5;
  static constexpr std::chrono::milliseconds kFirstPause{100};
  static constexpr std::chrono::seconds kHealthy{60};

  struct Actions {
    std::function<void()> start;                    // may throw
    std::function<bool()> serves;                   // whether the one started last is ready
    std::function<void(const std::string&)> say;    // one line, for people
    std::function<void(const char* word)> publish;  // one of the words above, or ""
  };
  // `now`: when the first daemon was started.
  CudaWatch(Actions actions, Clock::time_point now) : actions_(std::move(actions)), started_(now) {}

  // `how`: "the CUDA daemon was ended by signal 9".
  void OnDeath(const std::string& how, Clock::time_point now);
  // Does what is due. To be called often while busy().
  void Advance(Clock::time_point now);
  bool busy() const { return due_.has_value() || awaited_; }

 private:
  const Actions actions_;
  Clock::time_point started_;
  std::optional<Clock::time_point> due_;  // of the next start
  bool awaited_ = false;                  // started, and not known to serve yet
  int restarts_ = 0;                      // in a row
};

}  // namespace smolvm::machine
