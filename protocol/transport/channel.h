// A connected stream socket with a read buffer: what the session and the guest's client send frames
// over.
#pragma once

#include <sys/uio.h>

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

  // Exactly `size` bytes; false at end of stream or error (errno tells; 0 = clean end). What is
  // larger than the buffer goes straight to `out`.
  bool Read(void* out, size_t size);
  // Reads and drops.
  bool Skip(uint64_t size);
  // Whether bytes are already buffered or waiting in the socket, without blocking.
  bool Readable();
  // All of it; never raises SIGPIPE. False when the peer is gone.
  bool Write(const void* data, size_t size);
  bool Write(iovec* parts, int count);  // modifies `parts`
  void Shutdown();
  int fd() const { return fd_; }

 private:
  const int fd_;
  std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;
};

}  // namespace smolvm::transport
