// What single PTX instructions compute, written from the PTX ISA for tests: plain, slow, and with
// nothing in common with the kernel compiler, so that each can be checked against the other.
#pragma once

#include <cstdint>
#include <span>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::ptx_interpreter {

using emulation::ptx::Instruction;
using emulation::ptx::Type;

// The condition code register of add.cc and its like.
struct Carry {
  bool flag = false;
};

struct Value {
  uint64_t bits = 0;
  bool second = false;  // the q of setp's "p|q"
};

// `sources`: the bits of the source operands, each of its own type, without the destination. False:
// not an arithmetic instruction, or one that is not covered.
//
// ".approx" results are the correctly rounded ones, so comparisons need the ISA's tolerance. NaNs
// are canonical: 0x7FFFFFFF, 0x7FFF, 0x7FF8000000000000.
bool Evaluate(const Instruction& instruction, std::span<const uint64_t> sources, Carry* carry,
              Value* value);

// Equal bits, or both NaN. Packed types lane by lane.
bool SameValue(Type type, uint64_t a, uint64_t b);

uint64_t Truncate(uint64_t bits, unsigned width);
int64_t SignExtend(uint64_t bits, unsigned width);

}  // namespace smolvm::ptx_interpreter
