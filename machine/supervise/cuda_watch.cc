#include "machine/supervise/cuda_watch.h"

#include <fmt/format.h>

#include <exception>

#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

constexpr int kFactor = 3;

}  // namespace

std::string ReadCudaState(const std::filesystem::path& folder) {
  const std::string word = FileTail(folder / kCudaStateFile, 64);
  return word == kCudaRestarting || word == kCudaFailed ? word : "";
}

void CudaWatch::OnDeath(const std::string& how, Clock::time_point now) {
  if (now - started_ >= kHealthy) restarts_ = 0;
  awaited_ = false;
  if (restarts_ == kMostRestarts) {
    due_.reset();
    actions_.publish(kCudaFailed);
    actions_.say(fmt::format("{}, after {} restarts in a row; the machine goes on without CUDA",
                             how, kMostRestarts));
    return;
  }
  std::chrono::milliseconds pause = kFirstPause;
  for (int i = 0; i < restarts_; ++i) pause *= kFactor;
  ++restarts_;
  due_ = now + pause;
  actions_.publish(kCudaRestarting);
  actions_.say(how + "; CUDA programs that run in the machine have failed, it is started again");
}

void CudaWatch::Advance(Clock::time_point now) {
  if (due_ && now >= *due_) {
    due_.reset();
    started_ = now;
    awaited_ = true;
    try {
      actions_.start();
    } catch (const std::exception& error) {
      return OnDeath(fmt::format("the CUDA daemon cannot be started: {}", error.what()), now);
    }
  }
  if (!awaited_ || !actions_.serves()) return;
  awaited_ = false;
  actions_.publish("");
  actions_.say("the CUDA daemon serves again");
}

}  // namespace smolvm::machine
