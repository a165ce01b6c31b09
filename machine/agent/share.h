// Mounts a share of the host: a FUSE file system whose requests travel to the launcher.
#pragma once

#include <sys/types.h>

#include "machine/agent/connect.h"
#include "machine/wire/messages.h"

namespace smolvm::agent {

// Connects with `hello`, mounts at share.path and forks the process that carries the requests.
// Returns that process; throws machine::Failure.
pid_t MountShare(const Endpoint& endpoint, const machine::Hello& hello,
                 const machine::GuestShare& share);

}  // namespace smolvm::agent
