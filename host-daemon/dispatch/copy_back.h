// Copies to pinned host memory that the guest does not wait for: they finish in stream order, and
// their bytes travel ahead of the first reply that could tell the program that they have finished.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>

#include "host-daemon/dispatch/staging.h"
#include "host-daemon/session/session.h"
#include "protocol/api/driver_table.h"

namespace smolvm::dispatch {

// Threads: Add from any lane; SendFinished with the connection's write side held.
class CopiesBack {
 public:
  explicit CopiesBack(const driver::DriverTable& driver) : driver_(driver) {}

  // `done` was recorded behind the copy into `buffer`; this object destroys it.
  void Add(uint64_t copy_id, StagingBuffer buffer, size_t size, CUevent done);
  // A buffer that a copy to the device still reads; nothing is sent.
  void AddHeld(StagingBuffer buffer, CUevent done) {
    Add(kNothingToSend, std::move(buffer), 0, done);
  }
  void SendFinished(session::Session& session);

 private:
  static constexpr uint64_t kNothingToSend = 0;
  struct Pending {
    uint64_t copy_id;
    StagingBuffer buffer;
    size_t size;
    CUevent done;
  };
  const driver::DriverTable& driver_;
  std::atomic<size_t> count_{0};
  std::mutex mutex_;
  std::deque<Pending> pending_;
};

}  // namespace smolvm::dispatch
