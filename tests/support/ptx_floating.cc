// Floating-point arithmetic: PTX ISA 9.0, 9.7.3 to 9.7.5.
#include <cmath>

#include "tests/support/ptx_evaluators.h"
#include "tests/support/ptx_float.h"

namespace smolvm::ptx_interpreter {
namespace {

using emulation::ptx::Modifiers;
using emulation::ptx::Opcode;

uint64_t One(Type type) { return FromDouble(1.0, type, Rounding::kRn); }
bool IsNegative(Type type, uint64_t bits) { return (bits & SignBit(type)) != 0; }

uint64_t Clamp01(Type type, uint64_t bits) {
  if (IsNan(type, bits) || IsNegative(type, bits)) return 0;
  return ToDouble(type, bits) > 1.0 ? One(type) : bits;
}

uint64_t Relu(Type type, uint64_t bits) {
  if (IsNan(type, bits)) return CanonicalNan(type);
  return IsNegative(type, bits) ? 0 : bits;
}

// min and max: -0 is less than +0, and a NaN loses unless .NaN is given.
uint64_t Extreme(Type type, const Modifiers& m, bool is_max, uint64_t a, uint64_t b) {
  const bool sign = IsNegative(type, a) != IsNegative(type, b);
  if (m.xorsign) {
    a &= ~SignBit(type);
    b &= ~SignBit(type);
  }
  uint64_t result;
  if (IsNan(type, a) || IsNan(type, b)) {
    if (m.nan || (IsNan(type, a) && IsNan(type, b))) return CanonicalNan(type);
    result = IsNan(type, a) ? b : a;
  } else if (IsZero(type, a) && IsZero(type, b)) {
    result = is_max == IsNegative(type, a) ? b : a;
  } else {
    const bool a_is_greater = ToDouble(type, a) > ToDouble(type, b);
    result = a_is_greater == is_max ? a : b;
  }
  return m.xorsign && sign ? result | SignBit(type) : result;
}

uint64_t Unary(const Instruction& i, Type type, uint64_t a) {
  const Rounding rounding = i.modifiers.rounding;
  const double x = ToDouble(type, a);
  double result;
  switch (i.opcode) {
    case Opcode::kRcp:
      return Divide(type, One(type), a, rounding);
    case Opcode::kSqrt:
      return SquareRoot(type, a, rounding);
    case Opcode::kRsqrt:
      result = 1.0 / std::sqrt(x);
      break;
    case Opcode::kSin:
      result = std::sin(x);
      break;
    case Opcode::kCos:
      result = std::cos(x);
      break;
    case Opcode::kLg2:
      result = std::log2(x);
      break;
    case Opcode::kEx2:
      result = std::exp2(x);
      break;
    default:
      result = std::tanh(x);
      break;
  }
  return FromDouble(result, type, Rounding::kRn);
}

bool IsUnary(Opcode opcode) {
  switch (opcode) {
    case Opcode::kRcp:
    case Opcode::kSqrt:
    case Opcode::kRsqrt:
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kLg2:
    case Opcode::kEx2:
    case Opcode::kTanh:
      return true;
    default:
      return false;
  }
}

// One lane. `s` holds the lane's operands, flushed already when the instruction says so.
bool Lane(const Instruction& i, Type type, Sources s, uint64_t* result) {
  const Rounding rounding = i.modifiers.rounding;
  if (IsUnary(i.opcode)) return *result = Unary(i, type, s[0]), true;
  switch (i.opcode) {
    case Opcode::kAdd:
      return *result = Add(type, s[0], s[1], rounding), true;
    case Opcode::kSub:
      return *result = Add(type, s[0], s[1] ^ SignBit(type), rounding), true;
    case Opcode::kMul:
      return *result = Multiply(type, s[0], s[1], rounding), true;
    case Opcode::kFma:
    case Opcode::kMad:
      return *result = Fma(type, s[0], s[1], s[2], rounding), true;
    case Opcode::kDiv:
      return *result = Divide(type, s[0], s[1], rounding), true;
    case Opcode::kAbs:
      return *result = s[0] & ~SignBit(type), true;
    case Opcode::kNeg:
      return *result = s[0] ^ SignBit(type), true;
    case Opcode::kMin:
    case Opcode::kMax: {
      const bool is_max = i.opcode == Opcode::kMax;
      *result = Extreme(type, i.modifiers, is_max, s[0], s[1]);
      if (s.size() > 2) *result = Extreme(type, i.modifiers, is_max, *result, s[2]);
      return true;
    }
    default:
      return false;
  }
}

bool Scalar(const Instruction& i, Type type, Sources s, uint64_t* result) {
  uint64_t operands[3];
  if (s.size() > 3) return false;
  for (size_t n = 0; n < s.size(); ++n) {
    operands[n] = Truncate(s[n], FormatOf(type).width());
    if (i.modifiers.ftz) operands[n] = FlushSubnormal(type, operands[n]);
  }
  if (!Lane(i, type, {operands, s.size()}, result)) return false;
  if (i.modifiers.ftz) *result = FlushSubnormal(type, *result);
  if (i.modifiers.sat) *result = Clamp01(type, *result);
  if (i.modifiers.relu) *result = Relu(type, *result);
  return true;
}

}  // namespace

bool EvaluateFloat(const Instruction& i, Sources s, Value* value) {
  if (i.type_count > 1) return false;  // mixed precision
  const Type type = i.type();
  if (i.opcode == Opcode::kCopysign) {
    value->bits = (s[1] & ~SignBit(type)) | (s[0] & SignBit(type));
    return true;
  }
  switch (type) {
    case Type::kF16:
    case Type::kBf16:
    case Type::kF32:
    case Type::kF64:
      return Scalar(i, type, s, &value->bits);
    case Type::kF16x2:
    case Type::kBf16x2:
      break;
    default:
      return false;
  }
  const Type lane = type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
  value->bits = 0;
  for (unsigned shift = 0; shift < 32; shift += 16) {
    uint64_t operands[3];
    if (s.size() > 3) return false;
    for (size_t n = 0; n < s.size(); ++n) operands[n] = (s[n] >> shift) & 0xFFFF;
    uint64_t result;
    if (!Scalar(i, lane, {operands, s.size()}, &result)) return false;
    value->bits |= result << shift;
  }
  return true;
}

}  // namespace smolvm::ptx_interpreter
