// Immediate operands whose values the ISA limits.
#pragma once

#include <string>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

// What is wrong with an immediate of an instruction whose operands are of the right kinds; empty
// when nothing is. Registers are not looked at: what they hold is known when the kernel runs.
std::string CheckImmediates(const Instruction& instruction);

}  // namespace smolvm::emulation::ptx
