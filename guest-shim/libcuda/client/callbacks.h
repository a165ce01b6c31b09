// Host functions and stream callbacks: they run here, on a thread of ours, in the order in which
// their streams reach them. The host gets ids; addresses stay in this process.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "protocol/transport/channel.h"

namespace smolvm::guest {

class Session;

struct HostFunction {
  CUhostFn function = nullptr;
  CUstreamCallback callback = nullptr;  // one of the two
  CUstream stream = nullptr;            // as the program named it
  void* user_data = nullptr;
};

// Threads: every function may be called from any thread.
class Callbacks {
 public:
  explicit Callbacks(Session& session) : session_(session) {}

  // Starts the thread and its connection at the first use. 0 with a CUresult when that fails.
  uint64_t Register(const HostFunction& function, CUresult* result);
  // The host refused the call that would have run it.
  void Forget(uint64_t id);
  // In a forked child: closes the child's copy of the socket and touches nothing else.
  void Abandon();
  // Functions that have not returned yet.
  size_t outstanding() const { return outstanding_.load(std::memory_order_acquire); }

 private:
  CUresult Start();
  void Loop();
  bool RunOne();

  Session& session_;
  std::mutex mutex_;
  bool started_ = false;
  std::unique_ptr<transport::Channel> channel_;
  std::unordered_map<uint64_t, HostFunction> functions_;
  uint64_t next_id_ = 1;
  std::atomic<size_t> outstanding_{0};
};

}  // namespace smolvm::guest
