// A guest thread's counterpart here: a thread that runs its calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "host-daemon/session/call.h"

namespace smolvm::session {

class Engine;

// Lifetime: until its thread ends; the engine finds it by id until then.
// Threads: everything but the three fields marked so belongs to its own thread.
class Lane final : private Call {
 public:
  Lane(Engine& engine, uint32_t id);

  uint32_t id() const { return id_; }
  void Main();

  // Guarded by the engine's mutex.
  std::condition_variable wake;
  bool has_turn = false;
  wire::FrameHeader pending;  // valid when has_turn

 private:
  bool ReadBulk(void* out, size_t size) override;
  bool SendBulk(const void* data, size_t size) override;
  void AboutToBlock() override;

  // All return false when the session has ended.
  bool Serve(const wire::FrameHeader& header);
  bool ServeUnknown(const wire::FrameHeader& header);
  bool Acceptable(const CallTraits& traits);
  bool ReadArgs();
  bool Run(const CallTraits& traits, uint32_t* status);
  bool SkipBulk();
  bool Reply(uint32_t status);
  void Leave();

  Engine& engine_;
  const uint32_t id_;
  std::vector<char> args_buffer_;
  bool holds_turn_ = false;
  bool gave_turn_ = false;  // in this call
  uint32_t deferred_ = 0;   // the first failure that nobody has been told of
};

}  // namespace smolvm::session
