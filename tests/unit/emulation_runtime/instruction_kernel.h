// Kernels made of rows: each row loads its operands, runs one instruction, and stores the result.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/unit/emulation_runtime/instruction_table.h"

namespace smolvm::emulation {

inline constexpr size_t kMaxSources = 4;

std::vector<std::string> Split(const std::string& text);
// Of "b32", "f64", "pred" (1).
unsigned BitsOfRegister(const std::string& type);
// The kernel `rows(in, out)`: thread t, row k reads 8-byte slots in[(t * rows + k) * kMaxSources +
// …] and writes out[t * rows + k].
std::string KernelText(std::span<const InstructionRow> rows);

}  // namespace smolvm::emulation
