// What kernels print leaves the driver on this process's stdout, which the worker has made a memory
// file. New text is sent to the guest ahead of the next reply of a call that synchronises.
#pragma once

#include <sys/types.h>

#include "host-daemon/session/session.h"

namespace smolvm::dispatch {

// Threads: SendNew is called with the connection's write side held, hence by one thread at a time.
class DeviceOutput {
 public:
  explicit DeviceOutput(int fd) : fd_(fd) {}
  void SendNew(session::Session& session);

 private:
  const int fd_;
  off_t sent_ = 0;
};

}  // namespace smolvm::dispatch
