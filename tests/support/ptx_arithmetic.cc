#include "tests/support/ptx_arithmetic.h"

#include "tests/support/ptx_evaluators.h"
#include "tests/support/ptx_float.h"

namespace smolvm::ptx_interpreter {

uint64_t Truncate(uint64_t bits, unsigned width) {
  return width >= 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

int64_t SignExtend(uint64_t bits, unsigned width) {
  if (width >= 64) return static_cast<int64_t>(bits);
  const uint64_t sign = uint64_t{1} << (width - 1);
  return static_cast<int64_t>((Truncate(bits, width) ^ sign) - sign);
}

bool SameValue(Type type, uint64_t a, uint64_t b) {
  const auto same = [](Type lane, uint64_t x, uint64_t y) {
    return x == y || (IsNan(lane, x) && IsNan(lane, y));
  };
  switch (type) {
    case Type::kF16:
    case Type::kBf16:
    case Type::kF32:
    case Type::kF64: {
      const unsigned width = FormatOf(type).width();
      return same(type, Truncate(a, width), Truncate(b, width));
    }
    case Type::kF16x2:
    case Type::kBf16x2: {
      const Type lane = type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
      return same(lane, a & 0xFFFF, b & 0xFFFF) &&
             same(lane, (a >> 16) & 0xFFFF, (b >> 16) & 0xFFFF);
    }
    default:
      return a == b;
  }
}

bool Evaluate(const Instruction& instruction, std::span<const uint64_t> sources, Carry* carry,
              Value* value) {
  return EvaluateInteger(instruction, sources, carry, value) ||
         EvaluateBits(instruction, sources, value) || EvaluateFloat(instruction, sources, value) ||
         EvaluateCompare(instruction, sources, value) ||
         EvaluateConversion(instruction, sources, value);
}

}  // namespace smolvm::ptx_interpreter
