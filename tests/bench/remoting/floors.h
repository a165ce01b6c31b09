// What plain sockets do between two processes on this machine, at this moment.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace smolvm::bench {

// A second process at the other end of a Unix stream socket. It answers each message of the kinds
// below with plain system calls and nothing else.
class Peer {
 public:
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // One small message there and one back, of the sizes of a call without arguments and its reply.
  void RoundTrip();
  // Bytes there, into a buffer that the peer uses again each time, and a small answer.
  void Send(const char* data, size_t size);
  // Asks for bytes, and receives them.
  void Receive(char* data, size_t size);

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
};

}  // namespace smolvm::bench
