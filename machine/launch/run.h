// `smolvm machine run` and `exec`.
#pragma once

#include "machine/launch/options.h"

namespace smolvm::machine {

int RunMachine(const Options& options);
int ExecInMachine(const Options& options);

}  // namespace smolvm::machine
