// Copies to pinned host memory that the guest does not wait for: they finish in stream order, and
// their bytes travel ahead of the first reply that could tell the program that they have finished.
//
// Where this process can address the device's memory, a large copy is put off: nothing is copied as
// long as nothing but calls that wait comes after it, and its bytes are then sent from where they
// lie. Before any other call is served the copy takes its place in the stream, into its buffer:
// what is submitted later may write to the source, or free it.
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

// Threads: Add, PutOff and Begin from any lane; SendFinished with the connection's write side held.
class CopiesBack {
 public:
  // Below this a copy takes less time than finding out whether it can be avoided.
  static constexpr size_t kPutOffFrom = size_t{256} << 10;

  // What a copy that was put off needs to take its place after all. The source stays mapped until
  // Begin, since no call that could free it is served before. `stream` is no thread's own.
  struct Source {
    const char* data = nullptr;
    CUstream stream = nullptr;
    CUcontext context = nullptr;
  };

  explicit CopiesBack(const driver::DriverTable& driver) : driver_(driver) {}

  // `done` was recorded behind the copy into `buffer`; this object destroys it.
  void Add(uint64_t copy_id, StagingBuffer buffer, size_t size, CUevent done);
  // A buffer that a copy to the device still reads; nothing is sent.
  void AddHeld(StagingBuffer buffer, CUevent done) {
    Add(kNothingToSend, std::move(buffer), 0, done);
  }
  // Whether there is room for one more.
  bool MayPutOff() const { return put_off_.load(std::memory_order_acquire) < kMaxPutOff; }
  // `done` was recorded where the copy would stand; `buffer` is as large as the copy.
  void PutOff(uint64_t copy_id, StagingBuffer buffer, size_t size, CUevent done, Source source);
  // What was put off takes its place.
  void Begin() {
    if (put_off_.load(std::memory_order_acquire) != 0) BeginAll();
  }
  void SendFinished(session::Session& session);

 private:
  static constexpr uint64_t kNothingToSend = 0;
  // Each keeps a buffer on loan, though an untouched one, and is asked for at each reply.
  static constexpr size_t kMaxPutOff = 64;
  struct Pending {
    uint64_t copy_id;
    StagingBuffer buffer;
    size_t size;
    CUevent done;
    Source source;  // without data: the bytes are, or will be, in the buffer
    CUresult failure = CUDA_SUCCESS;
  };
  void Append(Pending pending);
  void BeginAll();
  CUresult BeginOne(const Pending& pending) const;
  const driver::DriverTable& driver_;
  std::atomic<size_t> count_{0};
  std::atomic<size_t> put_off_{0};
  std::mutex mutex_;
  std::deque<Pending> pending_;
};

}  // namespace smolvm::dispatch
