// Connections from the agent to the launcher.
#pragma once

#include <cstdint>
#include <string>

#include "machine/wire/channel.h"
#include "machine/wire/messages.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::agent {

// Where the launcher listens: port `port` of the host's vsock or, in tests, a Unix socket.
struct Endpoint {
  uint32_t port = 0;
  std::string unix_path;
};

// An open connection that has sent its hello; invalid when the launcher cannot be reached.
UniqueFd Connect(const Endpoint& endpoint, const machine::Hello& hello);

}  // namespace smolvm::agent
