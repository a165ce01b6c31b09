// What kind of thing each operand of an instruction is.
#pragma once

#include <cstdint>
#include <string_view>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

enum class Slot : char {
  kType = 't',         // the first type
  kSource = 's',       // the second type
  kWide = 'w',         // twice as wide as the first type
  kLooseType = 'T',    // the first type; the register may be wider
  kLooseSource = 'S',  // the second type; the register may be wider
  kMove = 'm',         // the first type; symbols, special registers and vectors too
  kPointer = 'A',      // the first type, or a symbol
  kAnyPointer = 'x',   // isspacep and the like: an address in a register, or a symbol
  kPredicate = 'p',
  kWord = 'u',  // a 32-bit integer
  kConstant = 'i',
  kAddress = 'a',
  kLabel = 'l',
  kTargets = 'g',
  kFree = '*',  // not checked
};

// A slot for each operand; the last one goes on.
std::string_view ShapeOf(const Instruction& instruction);

}  // namespace smolvm::emulation::ptx
