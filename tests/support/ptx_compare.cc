// Comparison and selection: PTX ISA 9.0, 9.7.6 and 9.7.7, and testp.
#include "tests/support/ptx_evaluators.h"
#include "tests/support/ptx_float.h"

namespace smolvm::ptx_interpreter {
namespace {

using emulation::ptx::Bool;
using emulation::ptx::Compare;
using emulation::ptx::Opcode;
using emulation::ptx::Test;

template <typename T>
bool Ordered(Compare compare, T a, T b) {
  switch (compare) {
    case Compare::kEq:
    case Compare::kEqu:
      return a == b;
    case Compare::kNe:
    case Compare::kNeu:
      return a != b;
    case Compare::kLt:
    case Compare::kLo:
    case Compare::kLtu:
      return a < b;
    case Compare::kLe:
    case Compare::kLs:
    case Compare::kLeu:
      return a <= b;
    case Compare::kGt:
    case Compare::kHi:
    case Compare::kGtu:
      return a > b;
    case Compare::kGe:
    case Compare::kHs:
    case Compare::kGeu:
      return a >= b;
    case Compare::kNum:
      return true;
    default:
      return false;
  }
}

bool TrueWhenUnordered(Compare compare) {
  switch (compare) {
    case Compare::kEqu:
    case Compare::kNeu:
    case Compare::kLtu:
    case Compare::kLeu:
    case Compare::kGtu:
    case Compare::kGeu:
    case Compare::kNan:
      return true;
    default:
      return false;
  }
}

bool Compares(const Instruction& i, Type type, uint64_t a, uint64_t b) {
  const Compare compare = i.modifiers.compare;
  const unsigned width = BitsOf(type);
  if (!IsFloat(type)) {
    return IsSigned(type) ? Ordered(compare, SignExtend(a, width), SignExtend(b, width))
                          : Ordered(compare, Truncate(a, width), Truncate(b, width));
  }
  if (i.modifiers.ftz) {
    a = FlushSubnormal(type, a);
    b = FlushSubnormal(type, b);
  }
  if (IsNan(type, a) || IsNan(type, b)) return TrueWhenUnordered(compare);
  return Ordered(compare, ToDouble(type, a), ToDouble(type, b));
}

bool Combine(Bool op, bool a, bool b) {
  switch (op) {
    case Bool::kAnd:
      return a && b;
    case Bool::kOr:
      return a || b;
    case Bool::kXor:
      return a != b;
    default:
      return a;
  }
}

bool IsPacked(Type type) { return type == Type::kF16x2 || type == Type::kBf16x2; }

uint64_t TestOf(const Instruction& i, uint64_t a) {
  const Type type = i.type();
  const bool nan = IsNan(type, a);
  const bool infinite = IsInfinite(type, a);
  switch (i.modifiers.test) {
    case Test::kFinite:
      return !nan && !infinite ? 1 : 0;
    case Test::kInfinite:
      return infinite ? 1 : 0;
    case Test::kNumber:
      return nan ? 0 : 1;
    case Test::kNotANumber:
      return nan ? 1 : 0;
    case Test::kNormal:
      return !nan && !infinite && !IsSubnormal(type, a) ? 1 : 0;
    default:
      return IsSubnormal(type, a) ? 1 : 0;
  }
}

uint64_t Select(const Instruction& i, Sources s) {
  bool first;
  if (i.source_type() == Type::kF32) {
    const uint64_t c = i.modifiers.ftz ? FlushSubnormal(Type::kF32, s[2]) : s[2];
    first = !IsNan(Type::kF32, c) && (IsZero(Type::kF32, c) || (c & SignBit(Type::kF32)) == 0);
  } else {
    first = SignExtend(s[2], 32) >= 0;
  }
  return Truncate(first ? s[0] : s[1], BitsOf(i.type()));
}

}  // namespace

bool EvaluateCompare(const Instruction& i, Sources s, Value* value) {
  switch (i.opcode) {
    case Opcode::kSetp: {
      if (IsPacked(i.type())) return false;
      const bool holds = Compares(i, i.type(), s[0], s[1]);
      const bool c = s.size() > 2 && s[2] != 0;
      value->bits = Combine(i.modifiers.boolean, holds, c) ? 1 : 0;
      value->second = Combine(i.modifiers.boolean, !holds, c);
      return true;
    }
    case Opcode::kSet: {
      if (IsPacked(i.source_type()) || i.type() == Type::kF16 || i.type() == Type::kBf16)
        return false;
      const bool c = s.size() > 2 && s[2] != 0;
      const bool holds = Combine(i.modifiers.boolean, Compares(i, i.source_type(), s[0], s[1]), c);
      const uint64_t yes = i.type() == Type::kF32 ? FromDouble(1.0, Type::kF32, Rounding::kRn)
                                                  : Truncate(UINT64_MAX, BitsOf(i.type()));
      value->bits = holds ? yes : 0;
      return true;
    }
    case Opcode::kSlct:
      value->bits = Select(i, s);
      return true;
    case Opcode::kTestp:
      value->bits = TestOf(i, s[0]);
      return true;
    default:
      return false;
  }
}

}  // namespace smolvm::ptx_interpreter
