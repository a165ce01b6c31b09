// The parts of Evaluate(), by kind of instruction. Each returns false for instructions that are not
// its own.
#pragma once

#include <cstdint>
#include <span>

#include "tests/support/ptx_arithmetic.h"

namespace smolvm::ptx_interpreter {

using Sources = std::span<const uint64_t>;

bool EvaluateInteger(const Instruction& i, Sources s, Carry* carry, Value* value);
bool EvaluateBits(const Instruction& i, Sources s, Value* value);
bool EvaluateFloat(const Instruction& i, Sources s, Value* value);
bool EvaluateCompare(const Instruction& i, Sources s, Value* value);
bool EvaluateConversion(const Instruction& i, Sources s, Value* value);

}  // namespace smolvm::ptx_interpreter
