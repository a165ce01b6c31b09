// What plain sockets do between two processes on this machine, at this moment.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace smolvm::bench {

struct Message;

// A second process at the other end of a Unix stream socket. It answers each message of the kinds
// below with plain system calls and nothing else.
class Peer {
 public:
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  pid_t pid() const { return pid_; }

  // One small message there and one back, of the sizes of a call without arguments and its reply.
  void RoundTrip();
  // The same with a peer that is far away, as SMOLVM_CUDA_EMULATE_RTT_US makes it: the answer is
  // not there until so long after the question.
  void FarRoundTrip(double microseconds);
  // Bytes there, into a buffer that the peer uses again each time, and a small answer.
  void Send(const char* data, size_t size);
  // Asks for the bytes that were last sent, or as many others, and receives them.
  void Receive(char* data, size_t size);
  // The peer's buffer is replaced with memory that nobody has touched yet.
  void Renew(size_t size);

 private:
  void Tell(const Message& message);
  void AwaitAnswer();

  int fd_ = -1;
  pid_t pid_ = -1;
};

}  // namespace smolvm::bench
