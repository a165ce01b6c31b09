#pragma once

#include <string>

#include "machine/state/store.h"

namespace smolvm::machine {

// Makes the disk for what a kept machine changes: a sparse file with an empty ext4. On failure the
// machine's folder is removed and Failure thrown.
void MakeChangesDisk(MachineStore& store, const std::string& name);

}  // namespace smolvm::machine
