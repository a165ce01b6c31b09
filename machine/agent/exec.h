// Runs one command for the launcher, in a process of its own.
#pragma once

#include "machine/agent/connect.h"

namespace smolvm::agent {

// Connects with `hello`, reads the request, runs the command and carries its streams, signals and
// exit status. When the launcher goes away the command's process group is ended. Returns when all
// is over; the caller exits.
void ServeExec(const Endpoint& endpoint, const machine::Hello& hello);

}  // namespace smolvm::agent
