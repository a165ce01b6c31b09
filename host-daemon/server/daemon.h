// The daemon: accepts, reads hellos, admits, gives each guest a worker, and says what happens.
#pragma once

#include "host-daemon/server/options.h"

namespace smolvm::server {

// Serves until SIGTERM or SIGINT, and returns the exit status. Nothing that a guest sends after
// its hello is read in this process.
int RunDaemon(const Options& options);

}  // namespace smolvm::server
