// Gives a session whatever bytes the fuzzer makes up, as a guest would send them, and then leaves.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>

#include "host-daemon/session/session.h"

namespace smolvm::fuzz {

inline void ServeBytes(session::Handler& handler, const uint8_t* data, size_t size) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
  session::Session session(std::make_unique<transport::Channel>(ends[1]), handler,
                           {.max_lanes = 4, .lane_stack_bytes = 256 * 1024});
  // Replies are read too, or a session with much to say would wait for ever.
  std::thread reader([fd = ends[0]] {
    char bytes[4096];
    while (recv(fd, bytes, sizeof bytes, 0) > 0) {
    }
  });
  std::thread writer([fd = ends[0], data, size] {
    for (size_t sent = 0; sent < size;) {
      const ssize_t count = send(fd, data + sent, size - sent, MSG_NOSIGNAL);
      if (count <= 0) break;
      sent += static_cast<size_t>(count);
    }
    shutdown(fd, SHUT_WR);
  });
  session.Run();
  writer.join();
  reader.join();
  close(ends[0]);
}

}  // namespace smolvm::fuzz
