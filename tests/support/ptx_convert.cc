// cvt: PTX ISA 9.0, 9.7.9.21, for integers, .f16, .bf16, .f32, .f64 and pairs of the first two.
#include <algorithm>
#include <cmath>

#include "tests/support/ptx_evaluators.h"
#include "tests/support/ptx_float.h"

namespace smolvm::ptx_interpreter {
namespace {

using emulation::ptx::Opcode;
using Wide = __int128;

bool IsScalarFloat(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64;
}

Wide Least(Type type) { return IsSigned(type) ? -(static_cast<Wide>(1) << (BitsOf(type) - 1)) : 0; }
Wide Most(Type type) {
  return (static_cast<Wide>(1) << (BitsOf(type) - (IsSigned(type) ? 1 : 0))) - 1;
}

uint64_t IntegerToInteger(const Instruction& i, uint64_t a) {
  const Type from = i.source_type();
  const Type to = i.type();
  Wide value =
      IsSigned(from) ? SignExtend(a, BitsOf(from)) : static_cast<Wide>(Truncate(a, BitsOf(from)));
  if (i.modifiers.sat) value = std::clamp(value, Least(to), Most(to));
  return Truncate(static_cast<uint64_t>(value), BitsOf(to));
}

uint64_t IntegerToFloat(const Instruction& i, uint64_t a) {
  const Type from = i.source_type();
  const int64_t value = SignExtend(a, BitsOf(from));
  const bool negative = IsSigned(from) && value < 0;
  const uint64_t magnitude = negative         ? 0 - static_cast<uint64_t>(value)
                             : IsSigned(from) ? static_cast<uint64_t>(value)
                                              : Truncate(a, BitsOf(from));
  return Round(negative, magnitude, 0, false, i.type(), i.modifiers.rounding);
}

double RoundToIntegral(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kRzi:
      return std::trunc(x);
    case Rounding::kRmi:
      return std::floor(x);
    case Rounding::kRpi:
      return std::ceil(x);
    default: {  // to nearest, ties to even; the rounding mode of the process is not relied upon
      const double below = std::floor(x);
      const double part = x - below;
      if (part < 0.5) return std::copysign(below, x);
      if (part > 0.5) return std::copysign(below + 1, x);
      return std::copysign(std::fmod(below, 2) == 0 ? below : below + 1, x);
    }
  }
}

uint64_t FloatToInteger(const Instruction& i, uint64_t a) {
  const Type from = i.source_type();
  const Type to = i.type();
  if (i.modifiers.ftz) a = FlushSubnormal(from, a);
  if (IsNan(from, a)) {
    if (from != Type::kF64 && BitsOf(to) != 64) return 0;
    return uint64_t{1} << (BitsOf(to) - 1);
  }
  const double x = RoundToIntegral(ToDouble(from, a), i.modifiers.rounding);
  if (x <= static_cast<double>(Least(to)))
    return Truncate(static_cast<uint64_t>(Least(to)), BitsOf(to));
  if (x >= static_cast<double>(Most(to)))
    return Truncate(static_cast<uint64_t>(Most(to)), BitsOf(to));
  return Truncate(static_cast<uint64_t>(static_cast<Wide>(x)), BitsOf(to));
}

bool RoundsToIntegral(Rounding rounding) {
  return rounding == Rounding::kRni || rounding == Rounding::kRzi || rounding == Rounding::kRmi ||
         rounding == Rounding::kRpi;
}

uint64_t FloatToFloat(const Instruction& i, Type to, uint64_t a) {
  const Type from = i.source_type();
  if (i.modifiers.ftz && from == Type::kF32) a = FlushSubnormal(from, a);
  double x = ToDouble(from, a);
  if (RoundsToIntegral(i.modifiers.rounding)) x = RoundToIntegral(x, i.modifiers.rounding);
  uint64_t result = FromDouble(x, to, i.modifiers.rounding);
  if (i.modifiers.ftz && to == Type::kF32) result = FlushSubnormal(to, result);
  if (i.modifiers.sat) {
    const bool low = IsNan(to, result) || (result & SignBit(to)) != 0;
    if (low) return 0;
    if (ToDouble(to, result) > 1.0) return FromDouble(1.0, to, Rounding::kRn);
  }
  if (i.modifiers.relu && !IsNan(to, result) && (result & SignBit(to)) != 0) return 0;
  return result;
}

}  // namespace

bool EvaluateConversion(const Instruction& i, Sources s, Value* value) {
  if (i.opcode != Opcode::kCvt || i.modifiers.satfinite || i.modifiers.scaled) return false;
  const Type from = i.source_type();
  const Type to = i.type();
  if ((to == Type::kF16x2 || to == Type::kBf16x2) && from == Type::kF32 && s.size() == 2) {
    const Type lane = to == Type::kF16x2 ? Type::kF16 : Type::kBf16;
    value->bits = (FloatToFloat(i, lane, s[0]) << 16) | FloatToFloat(i, lane, s[1]);
    return true;
  }
  const uint64_t a = Truncate(s[0], BitsOf(from));
  if (s.size() != 1) return false;
  if (IsInteger(from) && IsInteger(to)) {
    value->bits = IntegerToInteger(i, a);
  } else if (IsInteger(from) && IsScalarFloat(to)) {
    value->bits = IntegerToFloat(i, a);
    if (i.modifiers.sat) return false;
  } else if (IsScalarFloat(from) && IsInteger(to)) {
    value->bits = FloatToInteger(i, a);
  } else if (IsScalarFloat(from) && IsScalarFloat(to)) {
    value->bits = FloatToFloat(i, to, a);
  } else {
    return false;
  }
  return true;
}

}  // namespace smolvm::ptx_interpreter
