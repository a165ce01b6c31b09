// `smolvm machine list`, `stop`, `delete` and `prune`.
#pragma once

#include <string>
#include <vector>

#include "machine/launch/options.h"
#include "machine/state/store.h"

namespace smolvm::machine {

int ListMachines(const Options& options);
int StopMachines(const Options& options);
int DeleteMachines(const Options& options);
int PruneMachines(const Options& options);

// What `list` prints.
std::string FormatList(const std::vector<MachineEntry>& entries);
std::string FormatListJson(const std::vector<MachineEntry>& entries);

}  // namespace smolvm::machine
