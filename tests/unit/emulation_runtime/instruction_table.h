// The single instructions that are held against the reference evaluator, in every type and mode
// that compilers emit.
#pragma once

#include <span>

namespace smolvm::emulation {

// `operands`: the destination's register type, then each source: a register type (b16, b32, f64,
// pred …) or an immediate ("#150").
struct InstructionRow {
  const char* mnemonic;
  const char* operands;
};

std::span<const InstructionRow> IntegerRows();
std::span<const InstructionRow> FloatRows();
std::span<const InstructionRow> ConversionRows();

}  // namespace smolvm::emulation
