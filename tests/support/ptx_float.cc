#include "tests/support/ptx_float.h"

#include <bit>
#include <cfenv>
#include <cmath>

namespace smolvm::ptx_interpreter {
namespace {

uint64_t FractionMask(Type type) { return (uint64_t{1} << FormatOf(type).fraction_bits) - 1; }
uint64_t ExponentMask(Type type) {
  const Format f = FormatOf(type);
  return ((uint64_t{1} << f.exponent_bits) - 1) << f.fraction_bits;
}

int ModeOf(Rounding rounding) {
  switch (rounding) {
    case Rounding::kRz:
    case Rounding::kRzi:
      return FE_TOWARDZERO;
    case Rounding::kRm:
    case Rounding::kRmi:
      return FE_DOWNWARD;
    case Rounding::kRp:
    case Rounding::kRpi:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

class RoundingScope {
 public:
  explicit RoundingScope(int mode) : saved_(fegetround()) { fesetround(mode); }
  ~RoundingScope() { fesetround(saved_); }

 private:
  int saved_;
};

// The compiler must neither fold nor move the operation: operands and results go through memory.
template <typename T, typename Operation>
uint64_t Native(Rounding rounding, Operation operation, uint64_t nan) {
  const RoundingScope scope(ModeOf(rounding));
  volatile T result = operation();
  const T value = result;
  if (std::isnan(value)) return nan;
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<uint32_t>(value);
  } else {
    return std::bit_cast<uint64_t>(value);
  }
}

template <typename Single, typename Double, typename Small>
uint64_t Dispatch(Type type, Rounding rounding, Single single, Double dbl, Small small) {
  if (type == Type::kF32) return Native<float>(rounding, single, CanonicalNan(type));
  if (type == Type::kF64) return Native<double>(rounding, dbl, CanonicalNan(type));
  // f16 and bf16: round to odd in double, which has more than twice their precision, then once
  // more.
  feclearexcept(FE_INEXACT);
  const uint64_t bits = Native<double>(Rounding::kRz, small, CanonicalNan(Type::kF64));
  const auto odd = std::bit_cast<double>(bits | (fetestexcept(FE_INEXACT) != 0 ? 1u : 0u));
  return FromDouble(odd, type, rounding);
}

float AsFloat(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double AsDouble(uint64_t bits) { return std::bit_cast<double>(bits); }

bool RoundsUp(Rounding rounding, bool negative, bool odd, bool half, bool rest) {
  switch (rounding) {
    case Rounding::kRz:
      return false;
    case Rounding::kRm:
      return negative && (half || rest);
    case Rounding::kRp:
      return !negative && (half || rest);
    case Rounding::kRna:
      return half;
    default:
      return half && (rest || odd);
  }
}

}  // namespace

Format FormatOf(Type type) {
  switch (type) {
    case Type::kF16:
      return {5, 10};
    case Type::kBf16:
      return {8, 7};
    case Type::kF64:
      return {11, 52};
    default:
      return {8, 23};
  }
}

bool IsNan(Type type, uint64_t bits) {
  return (bits & ExponentMask(type)) == ExponentMask(type) && (bits & FractionMask(type)) != 0;
}
bool IsInfinite(Type type, uint64_t bits) {
  return (bits & ExponentMask(type)) == ExponentMask(type) && (bits & FractionMask(type)) == 0;
}
bool IsSubnormal(Type type, uint64_t bits) {
  return (bits & ExponentMask(type)) == 0 && (bits & FractionMask(type)) != 0;
}
bool IsZero(Type type, uint64_t bits) {
  return (bits & (ExponentMask(type) | FractionMask(type))) == 0;
}
uint64_t SignBit(Type type) { return uint64_t{1} << (FormatOf(type).width() - 1); }
uint64_t CanonicalNan(Type type) {
  if (type == Type::kF64) return 0x7FF8'0000'0000'0000;
  return SignBit(type) - 1;
}
uint64_t FlushSubnormal(Type type, uint64_t bits) {
  return IsSubnormal(type, bits) ? bits & SignBit(type) : bits;
}

uint64_t Round(bool negative, unsigned __int128 significand, int exponent, bool sticky, Type type,
               Rounding rounding) {
  const Format f = FormatOf(type);
  const uint64_t sign = negative ? SignBit(type) : 0;
  if (significand == 0) return sign;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int lowest = 1 - bias - static_cast<int>(f.fraction_bits);  // of a subnormal's last bit
  int top = 127;
  while ((significand >> top) == 0) --top;
  // The exponent that the last kept bit gets.
  const int last = std::max(exponent + top - static_cast<int>(f.fraction_bits), lowest);
  const int drop = last - exponent;
  unsigned __int128 kept;
  bool half = false;
  bool rest = sticky;
  if (drop <= 0) {
    kept = significand << -drop;
  } else if (drop > 127) {
    kept = 0;
    rest = true;
  } else {
    kept = significand >> drop;
    half = ((significand >> (drop - 1)) & 1) != 0;
    rest = rest || (significand & ((static_cast<unsigned __int128>(1) << (drop - 1)) - 1)) != 0;
  }
  if (RoundsUp(rounding, negative, (kept & 1) != 0, half, rest)) ++kept;
  // `kept` × 2^last: with the hidden bit, the biased exponent is added as is; a carry out of the
  // fraction counts it up.
  const auto hidden = static_cast<unsigned __int128>(1) << f.fraction_bits;
  const int biased = last - lowest;  // one less than a normal number's
  const uint64_t bits = kept < hidden ? static_cast<uint64_t>(kept)
                                      : (static_cast<uint64_t>(biased) << f.fraction_bits) +
                                            static_cast<uint64_t>(kept);
  if (bits < ExponentMask(type)) return sign | bits;
  const bool stays_finite = rounding == Rounding::kRz || (rounding == Rounding::kRm && !negative) ||
                            (rounding == Rounding::kRp && negative);
  return sign | (stays_finite ? ExponentMask(type) - 1 : ExponentMask(type));
}

double ToDouble(Type type, uint64_t bits) {
  if (type == Type::kF64) return AsDouble(bits);
  if (type == Type::kF32) return static_cast<double>(AsFloat(bits));
  if (IsNan(type, bits)) return AsDouble(CanonicalNan(Type::kF64));
  const Format f = FormatOf(type);
  const double sign = (bits & SignBit(type)) != 0 ? -1.0 : 1.0;
  if (IsInfinite(type, bits)) return sign * HUGE_VAL;
  const auto biased = static_cast<int>((bits & ExponentMask(type)) >> f.fraction_bits);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  uint64_t significand = bits & FractionMask(type);
  if (biased != 0) significand |= FractionMask(type) + 1;
  const int exponent = std::max(biased, 1) - bias - static_cast<int>(f.fraction_bits);
  return sign * std::ldexp(static_cast<double>(significand), exponent);
}

uint64_t FromDouble(double value, Type type, Rounding rounding) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if (IsNan(Type::kF64, bits)) return CanonicalNan(type);
  const bool negative = (bits >> 63) != 0;
  if (IsInfinite(Type::kF64, bits)) return (negative ? SignBit(type) : 0) | ExponentMask(type);
  uint64_t significand = bits & FractionMask(Type::kF64);
  const auto biased = static_cast<int>((bits & ExponentMask(Type::kF64)) >> 52);
  if (biased != 0) significand |= uint64_t{1} << 52;
  return Round(negative, significand, std::max(biased, 1) - 1075, false, type, rounding);
}

uint64_t Add(Type type, uint64_t a, uint64_t b, Rounding rounding) {
  volatile double x = ToDouble(type, a);
  volatile double y = ToDouble(type, b);
  volatile float fx = static_cast<float>(x);
  volatile float fy = static_cast<float>(y);
  return Dispatch(
      type, rounding, [&] { return fx + fy; }, [&] { return x + y; }, [&] { return x + y; });
}

uint64_t Multiply(Type type, uint64_t a, uint64_t b, Rounding rounding) {
  volatile double x = ToDouble(type, a);
  volatile double y = ToDouble(type, b);
  volatile float fx = static_cast<float>(x);
  volatile float fy = static_cast<float>(y);
  return Dispatch(
      type, rounding, [&] { return fx * fy; }, [&] { return x * y; }, [&] { return x * y; });
}

uint64_t Fma(Type type, uint64_t a, uint64_t b, uint64_t c, Rounding rounding) {
  volatile double x = ToDouble(type, a);
  volatile double y = ToDouble(type, b);
  volatile double z = ToDouble(type, c);
  volatile float fx = static_cast<float>(x);
  volatile float fy = static_cast<float>(y);
  volatile float fz = static_cast<float>(z);
  return Dispatch(
      type, rounding, [&] { return std::fma(fx, fy, fz); }, [&] { return std::fma(x, y, z); },
      [&] { return x * y + z; });
}

uint64_t Divide(Type type, uint64_t a, uint64_t b, Rounding rounding) {
  volatile double x = ToDouble(type, a);
  volatile double y = ToDouble(type, b);
  volatile float fx = static_cast<float>(x);
  volatile float fy = static_cast<float>(y);
  return Dispatch(
      type, rounding, [&] { return fx / fy; }, [&] { return x / y; }, [&] { return x / y; });
}

uint64_t SquareRoot(Type type, uint64_t a, Rounding rounding) {
  volatile double x = ToDouble(type, a);
  volatile float fx = static_cast<float>(x);
  return Dispatch(
      type, rounding, [&] { return std::sqrt(fx); }, [&] { return std::sqrt(x); },
      [&] { return std::sqrt(x); });
}

}  // namespace smolvm::ptx_interpreter
