// The second connection of a session: the host asks, the guest runs a host function and answers.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>

#include "protocol/transport/channel.h"

namespace smolvm::session {

// Threads: every function may be called from any thread. Calls are served one after the other, as
// CUDA serialises host functions too.
class CallbackLine {
 public:
  // A second channel is refused (closed).
  void Attach(std::unique_ptr<transport::Channel> channel);
  // See Session::CallGuest.
  bool Call(std::span<const char> args);
  // Wakes whoever waits in Call; it returns false, as every later one.
  void End();

 private:
  bool AwaitChannel();
  bool Exchange(std::span<const char> args);

  std::mutex turn_;   // held for a whole call
  std::mutex mutex_;  // guards what follows, held briefly
  std::condition_variable changed_;
  std::unique_ptr<transport::Channel> channel_;  // once set, never replaced
  bool ended_ = false;
  uint64_t sequence_ = 0;  // guarded by turn_
};

}  // namespace smolvm::session
