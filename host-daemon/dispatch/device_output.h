// What kernels print leaves the driver on this process's stdout, and their failed assertions on its
// stderr; the worker has made memory files of both. New text is sent to the guest ahead of the next
// reply of a call that synchronises.
#pragma once

#include <sys/types.h>

#include <cstdint>

#include "host-daemon/session/session.h"

namespace smolvm::dispatch {

// Threads: SendNew is called with the connection's write side held, hence by one thread at a time.
class DeviceOutput {
 public:
  // `frame`: wire::kDeviceOutput or kDeviceErrors. fd -1: there is none.
  DeviceOutput(int fd, uint32_t frame) : fd_(fd), frame_(frame) {}
  void SendNew(session::Session& session);

 private:
  const int fd_;
  const uint32_t frame_;
  off_t sent_ = 0;
};

}  // namespace smolvm::dispatch
