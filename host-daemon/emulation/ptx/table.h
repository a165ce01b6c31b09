// The table of instructions in docs/ptx.md.
#pragma once

#include <functional>
#include <string>

#include "host-daemon/emulation/ptx/opcode.h"

namespace smolvm::emulation::ptx {

// The whole page, in Markdown. `is_translated`: what the kernel compiler says of an instruction.
std::string OpcodePage(const std::function<bool(Opcode)>& is_translated);

}  // namespace smolvm::emulation::ptx
