// Connects Unix sockets for a vsock device, which is in a sandbox that does not let it: a device
// that a guest took over could otherwise speak to every socket of its user's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "protocol/base/unique_fd.h"

namespace smolvm::vsock {

// Lifetime: its process ends with this one. Threads: one at a time.
class Broker {
 public:
  // Starts it: a child that knows `path_of` ("": nothing is there) and takes port numbers, nothing
  // else. Before any thread is started. False with a one-line reason.
  bool Start(std::function<std::string(uint32_t port)> path_of, std::string* error);

  // A connected socket, or -1 and errno.
  int Connect(uint32_t port);

 private:
  UniqueFd socket_;
};

}  // namespace smolvm::vsock
