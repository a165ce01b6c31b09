#pragma once

#include <sys/types.h>

#include <filesystem>

#include "machine/state/record.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

// Runs the command of a detached machine over the agent's connection `fd`: a child process writes
// what the command prints to `log` (16 MiB at most) and ends when the command does.
pid_t StartDetachedCommand(const MachineRecord& record, UniqueFd fd,
                           const std::filesystem::path& log);

}  // namespace smolvm::machine
