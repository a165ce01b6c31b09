#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "host-daemon/emulation/device/stream.h"

namespace smolvm::emulation {

// Lifetime: shared by the handle table and calls in progress.
// Threads: every function may be called from any thread.
class Event {
 public:
  Event(unsigned flags, uint64_t context_id) : flags_(flags), context_id_(context_id) {}

  // Puts a record into `stream`. Queries and waits see the last record only.
  void Record(const std::shared_ptr<Stream>& stream, std::vector<Ticket> after = {});

  // The work that the last record waits for; done when there was none.
  Ticket last() const;
  bool Recorded() const;
  // When the last record happened; only once it is done.
  int64_t time_ns() const;
  // The group of the stream that it was last recorded in, for its fault. Null when never.
  std::shared_ptr<Stream> stream() const { return last().stream; }

  bool timing() const { return (flags_ & CU_EVENT_DISABLE_TIMING) == 0; }
  uint64_t context_id() const { return context_id_; }

 private:
  const unsigned flags_;
  const uint64_t context_id_;
  mutable std::mutex mutex_;
  Ticket last_;
  std::shared_ptr<std::atomic<int64_t>> time_;
};

}  // namespace smolvm::emulation
