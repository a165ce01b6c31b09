// A connected stream socket with a read buffer: what the session and the guest's client send frames
// over.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace smolvm::transport {

// Lifetime: owns the descriptor.
// Threads: one reader at a time and one writer at a time, which may be different threads. Shutdown
// may be called from any thread and wakes both.
class Channel {
 public:
  // Large enough for a few hundred small frames a system call.
  static constexpr size_t kReadBufferBytes = 64 * 1024;

  explicit Channel(int fd);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Exactly `size` bytes; false at end of stream or error (errno tells; 0 = end of stream). What is
  // larger than the buffer goes straight to `out`.
  bool Read(void* out, size_t size);
  // The same, and takes nothing else from the socket: for what large bytes follow, which would
  // otherwise pass through the buffer.
  bool ReadExactly(void* out, size_t size);
  // Reads and drops.
  bool Skip(uint64_t size);
  // Whether bytes are already buffered or waiting in the socket (or the stream has ended), without
  // blocking.
  bool Readable();
  // Bytes that Read would return without a system call.
  size_t buffered() const { return end_ - begin_; }
  // All of it; never raises SIGPIPE. False when the peer is gone.
  bool Write(const void* data, size_t size);
  bool Write(iovec* parts, int count);  // modifies `parts`
  void Shutdown();
  int fd() const { return fd_; }

  // As if the peer were that far away: bytes are read a round trip after the last write at the
  // earliest. What is sent without waiting for an answer costs nothing extra, as on a long line; a
  // thread that waits while others write may wait up to a round trip too long. Before any use.
  void EmulateRoundTrip(uint32_t microseconds) { emulated_rtt_us_ = microseconds; }

 private:
  size_t Take(void* out, size_t size);  // of the buffer
  bool Fill();                          // the buffer is empty: reads what there is
  bool ReadSome(void* out, size_t size, int flags, size_t* got);
  void WrittenNow();
  void AwaitEmulatedRoundTrip() const;

  const int fd_;
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
  uint32_t emulated_rtt_us_ = 0;
  std::atomic<int64_t> last_write_us_{0};
};

}  // namespace smolvm::transport
