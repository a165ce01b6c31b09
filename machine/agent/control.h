// The agent's main loop: opens a connection for each command that the launcher asks for, collects
// dead processes, ends the machine.
#pragma once

#include <string>
#include <vector>

#include "machine/agent/connect.h"
#include "machine/wire/channel.h"

namespace smolvm::agent {

struct ControlOptions {
  Endpoint endpoint;
  std::string secret;
  // Processes that must outlive the others when the machine stops, since files are written through
  // them.
  std::vector<pid_t> carriers;
  bool persistent = false;
};

// Says kReady and serves until the launcher says kPowerOff or is gone. True for kPowerOff.
bool ServeControl(const ControlOptions& options, machine::Channel* control);

// Ends every process but `options.carriers` and writes everything to the disks.
void StopProcesses(const ControlOptions& options);

}  // namespace smolvm::agent
