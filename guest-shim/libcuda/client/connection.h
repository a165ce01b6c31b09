// The guest's end of a session: sends requests, waits for replies, and lets calls that nobody waits
// for gather.
//
// There is no reader thread. Of the threads that wait, one reads; it hands the others their
// replies, and when it has its own it leaves the reading to the next. What must be seen before a
// reply (finished copies back, text that kernels printed) is ahead of it in the stream, so it is in
// place when the call returns.
#pragma once

#include <cuda.h>
#include <sys/uio.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "protocol/transport/channel.h"
#include "protocol/wire/frame.h"

namespace smolvm::guest {

// Raw bytes that travel behind a request's arguments.
using Bulk = std::span<const iovec>;

// What a call gets back.
struct Reply {
  std::string args;
  // Where the reply's bulk goes, in order; more than fits is a protocol error.
  char* sink = nullptr;
  uint64_t sink_size = 0;
  uint64_t received = 0;
};

// Lifetime: never destroyed: programs call the driver from atexit handlers.
// Threads: every function may be called from any thread. In a forked child nothing but Abandon may
// be called.
class Connection {
 public:
  explicit Connection(std::unique_ptr<transport::Channel> channel);

  // Sends at once, with all that has gathered, and waits. CUDA_ERROR_UNKNOWN when the session has
  // ended.
  CUresult Call(uint32_t call_id, uint32_t flags, uint32_t lane, std::string_view args, Bulk bulk,
                Reply* reply);
  // Sends some time soon: with the next call that waits, when enough has gathered, or after about
  // 50 µs. The bulk's bytes have been taken when it returns. CUDA_ERROR_UNKNOWN when the session
  // has ended.
  CUresult Post(uint32_t call_id, uint32_t flags, uint32_t lane, std::string_view args, Bulk bulk);

  // Names host memory that a copy back will fill (wire::kCopyBack). The id goes into the request.
  uint64_t ExpectCopyBack(void* to, uint64_t size);
  void ForgetCopyBack(uint64_t id);
  // Whether a copy back into [begin, begin + size) has not arrived yet.
  bool CopyBackPending(const void* begin, uint64_t size) const;
  bool AnyCopyBackPending() const { return copies_pending_.load(std::memory_order_acquire) > 0; }

  bool dead() const { return dead_.load(std::memory_order_acquire); }
  // In a forked child: closes the child's copy of the socket and touches nothing else.
  void Abandon();

 private:
  struct Waiter {
    uint64_t sequence;
    Reply* reply;
    CUresult status = CUDA_ERROR_UNKNOWN;
    bool done = false;
    std::condition_variable wake;
  };
  struct CopyBack {
    char* to;
    uint64_t size;
  };

  // Sending; with send_mutex_ held.
  uint64_t Append(uint32_t call_id, uint32_t flags, uint32_t lane, std::string_view args,
                  uint64_t bulk_bytes);
  bool Flush(Bulk bulk);
  void StartSender();
  void SenderLoop();

  // Receiving; by the thread that reads.
  bool ReadFrame();
  bool ReadReply(const wire::FrameHeader& header);
  bool ReadCopyBack(const wire::FrameHeader& header);
  bool ReadOutput(const wire::FrameHeader& header, FILE* to);
  CUresult WaitFor(Waiter& waiter);
  void Die();

  const std::unique_ptr<transport::Channel> channel_;
  std::atomic<bool> dead_{false};
  // The last frame said that more of its bulk follows; of the thread that reads.
  bool more_bulk_follows_ = false;

  std::mutex send_mutex_;
  std::string gathered_;
  uint64_t next_sequence_ = 1;
  bool sender_started_ = false;
  bool sender_armed_ = false;
  std::condition_variable sender_wake_;

  std::mutex wait_mutex_;
  std::list<Waiter*> waiters_;
  bool somebody_reads_ = false;

  mutable std::mutex copies_mutex_;
  std::map<uint64_t, CopyBack> copies_;
  uint64_t next_copy_ = 1;
  std::atomic<size_t> copies_pending_{0};
};

}  // namespace smolvm::guest
