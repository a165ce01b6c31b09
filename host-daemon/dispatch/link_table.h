// The links that a session has begun and not destroyed, with what of them is ours to keep: the log
// buffers that the driver writes to, and how much was added.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "host-daemon/dispatch/jit_options.h"

namespace smolvm::dispatch {

// Threads: `mutex` is held while the driver works on the state; the driver's linker is not
// documented to take two calls for one state at once.
struct LinkInProgress {
  LinkInProgress(CUlinkState state, std::unique_ptr<JitOptions> options)
      : state(state), options(std::move(options)) {}

  const CUlinkState state;
  std::mutex mutex;
  const std::unique_ptr<JitOptions> options;  // the driver has its arrays until the state ends
  bool destroyed = false;
  uint64_t input_bytes = 0;  // LinkTable's, with `inputs`
  size_t inputs = 0;
  // What cuLinkComplete returned; the state owns it.
  const void* image = nullptr;
  uint64_t image_bytes = 0;
};

// Threads: every function may be called from any thread.
class LinkTable {
 public:
  // Bounds on what one session can make the driver and us keep. A large program links some hundred
  // objects of some hundred kB; programs have one link open, or one a thread.
  static constexpr size_t kMaxLinks = 256;
  static constexpr size_t kMaxInputs = 4096;                     // of one link
  static constexpr uint64_t kMaxInputBytes = uint64_t{1} << 30;  // of all open links together

  bool HasRoom() const;
  void Add(uint64_t id, std::shared_ptr<LinkInProgress> link);
  // Null when there is no such link.
  std::shared_ptr<LinkInProgress> Find(uint64_t id) const;
  void Remove(uint64_t id);

  // Counts an input; false when it would be one too many.
  bool Count(LinkInProgress& link, uint64_t bytes);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<LinkInProgress>> links_;
  uint64_t input_bytes_ = 0;
};

}  // namespace smolvm::dispatch
