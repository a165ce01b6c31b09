// Which .param variables of a function's calls may be read before they are written.
#pragma once

#include <vector>

#include "host-daemon/emulation/ptx/cfg.h"
#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::codegen {

// By index in Function::variables: false where each read follows writes, in its own basic block, of
// all that it reads, as compilers write calls. The others must start as zero, so that a program
// that reads one which it never wrote gets the same value each time.
std::vector<bool> ReadUnwritten(const ptx::Function& function, const ptx::Cfg& cfg);

}  // namespace smolvm::emulation::codegen
