// "ld.global.nc.v4.f32" to an opcode, types and modifiers.
#pragma once

#include <string>
#include <string_view>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

// Fills opcode, types, modifiers and text. False: `*error` says which part is unknown or misplaced.
// `mnemonic` holds no blanks.
bool ParseMnemonic(std::string_view mnemonic, Instruction* instruction, std::string* error);

}  // namespace smolvm::emulation::ptx
