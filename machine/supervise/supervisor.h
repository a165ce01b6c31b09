// A machine's supervisor: a process of its own that starts the machine's processes, hands its
// commands their connections to the agent, and takes everything away at the end.
//
// It outlives a launcher that is killed, and notices: the launcher holds the other end of the owner
// socket. A supervisor that is killed takes its children along (PR_SET_PDEATHSIG); its folder is
// removed by the next `smolvm machine` command, or by the launcher if that still runs.
#pragma once

#include <string>

namespace smolvm::machine {

struct SupervisorOptions {
  std::string record_path;  // .../machines/NAME/machine.json
  int owner_fd = -1;        // inherited; the messages of message.h
  int lock_fd = -1;         // inherited; held as long as the machine runs
};

// Returns when the machine is gone: the process's exit status.
int RunSupervisor(const SupervisorOptions& options);

}  // namespace smolvm::machine
