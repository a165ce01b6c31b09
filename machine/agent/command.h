// Starts a command in the guest: pipes or a terminal, user, folder, environment.
#pragma once

#include <sys/types.h>

#include "machine/wire/messages.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::agent {

// A started command and the agent's ends of its streams. With a terminal, `in` and `out` are the
// same terminal and `err` is invalid.
struct Command {
  pid_t pid = -1;  // also its process group and session
  UniqueFd in, out, err;
};

// Fills `command`, or `failure` when it cannot be run. True when it was started.
bool StartCommand(const machine::ExecRequest& request, Command* command,
                  machine::ExitReport* failure);

}  // namespace smolvm::agent
