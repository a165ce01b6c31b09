#include "host-daemon/emulation/runtime/math.h"

#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace smolvm::emulation {
namespace {

// Runs with another rounding direction. The compiler is told not to move floating-point work across
// (math.cc is built with -frounding-math; operands and results pass through volatile).
class RoundingScope {
 public:
#if defined(__x86_64__)
  explicit RoundingScope(uint32_t mode) : old_(_mm_getcsr()) {
    constexpr unsigned kBits[] = {_MM_ROUND_NEAREST, _MM_ROUND_TOWARD_ZERO, _MM_ROUND_DOWN,
                                  _MM_ROUND_UP};
    _mm_setcsr((old_ & ~static_cast<unsigned>(_MM_ROUND_MASK)) | kBits[mode & 3]);
  }
  ~RoundingScope() { _mm_setcsr(old_); }

 private:
  const unsigned old_;
#else
  explicit RoundingScope(uint32_t mode) : old_(fegetround()) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    fesetround(kModes[mode & 3]);
  }
  ~RoundingScope() { fesetround(old_); }

 private:
  const int old_;
#endif
};

template <typename T>
T Rounded(FloatOp op, uint32_t mode, T a_in, T b_in, T c_in) {
  volatile T a = a_in, b = b_in, c = c_in, result = 0;
  const RoundingScope scope(mode);
  switch (op) {
    case FloatOp::kAdd:
      result = a + b;
      break;
    case FloatOp::kSub:
      result = a - b;
      break;
    case FloatOp::kMul:
      result = a * b;
      break;
    case FloatOp::kDiv:
      result = a / b;
      break;
    case FloatOp::kFma:
      result = std::fma(T{a}, T{b}, T{c});
      break;
    case FloatOp::kSqrt:
      result = std::sqrt(T{a});
      break;
  }
  return result;
}

// a·b + c in double, rounded to odd: a second rounding to 24 bits or fewer then gives what one
// rounding would. (Boldo and Melquiond, "When double rounding is odd".) a·b must be exact in
// double.
double FmaToOdd(double a, double b, double c) {
  const double product = a * b;
  const double sum = product + c;
  if (!std::isfinite(sum)) return sum;
  const double c_part = sum - product;
  const double error = (product - (sum - c_part)) + (c - c_part);  // TwoSum: exact
  if (error == 0) return sum;
  auto bits = std::bit_cast<uint64_t>(sum);
  if (bits & 1) return sum;
  // The exact value lies on the error's side of `sum`: take the neighbour there, which is odd.
  const bool away = (error > 0) == (sum > 0);
  bits += away ? 1 : -1;
  return std::bit_cast<double>(bits);
}

struct SmallFormat {
  int mantissa;  // explicit bits
  int exponent_bits;
};
constexpr SmallFormat kF16{10, 5};
constexpr SmallFormat kBf16{7, 8};
constexpr uint32_t kCanonicalNaN = 0x7fff;  // PTX ISA: of .f16 and .bf16

double FromSmall(SmallFormat format, uint32_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t fraction = bits & ((1u << format.mantissa) - 1);
  const int exponent =
      static_cast<int>(bits >> format.mantissa) & ((1 << format.exponent_bits) - 1);
  const double sign = (bits >> 15) & 1 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias - format.mantissa);
  return sign * std::ldexp(fraction + (1u << format.mantissa), exponent - bias - format.mantissa);
}

uint32_t ToSmall(SmallFormat format, RoundMode mode, double value) {
  if (std::isnan(value)) return kCanonicalNaN;
  const uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.mantissa;
  if (std::isinf(magnitude)) return sign | infinity;
  if (magnitude == 0) return sign;
  int exponent = std::ilogb(magnitude);
  if (exponent < 1 - bias) exponent = 1 - bias;  // subnormal: fixed scale
  const double scaled = std::ldexp(magnitude, format.mantissa - exponent);  // exact
  if (exponent > bias) {
    const bool to_infinity = mode == RoundMode::kNearest || (mode == RoundMode::kUp && sign == 0) ||
                             (mode == RoundMode::kDown && sign != 0);
    return sign | (to_infinity ? infinity : infinity - 1);
  }
  const double floor = std::floor(scaled);
  auto units = static_cast<uint32_t>(floor);
  const double rest = scaled - floor;
  bool up = false;
  switch (mode) {
    case RoundMode::kNearest:
      up = rest > 0.5 || (rest == 0.5 && (units & 1));
      break;
    case RoundMode::kZero:
      break;
    case RoundMode::kDown:
      up = rest > 0 && sign != 0;
      break;
    case RoundMode::kUp:
      up = rest > 0 && sign == 0;
      break;
  }
  units += up;
  // `units` holds the implicit bit when normal, so adding it to the exponent field below carries as
  // it should.
  const uint32_t field = static_cast<uint32_t>(exponent + bias - 1) << format.mantissa;
  const uint32_t bits = field + units;
  return sign | (bits > infinity ? infinity : bits);
}

}  // namespace

float HelpEx2F32(float x) { return exp2f(x); }
float HelpLg2F32(float x) { return log2f(x); }
float HelpSinF32(float x) { return sinf(x); }
float HelpCosF32(float x) { return cosf(x); }
float HelpTanhF32(float x) { return tanhf(x); }

float HelpRoundedF32(uint32_t op, uint32_t mode, float a, float b, float c) {
  return Rounded<float>(static_cast<FloatOp>(op), mode, a, b, c);
}
double HelpRoundedF64(uint32_t op, uint32_t mode, double a, double b, double c) {
  return Rounded<double>(static_cast<FloatOp>(op), mode, a, b, c);
}

float HelpRoundF64ToF32(uint32_t mode, double value) {
  volatile double in = value;
  const RoundingScope scope(mode);
  volatile float out = static_cast<float>(in);
  return out;
}

double HelpIntToFloat(uint32_t to_f32, uint32_t mode, uint64_t bits, uint32_t is_signed) {
  volatile uint64_t u = bits;
  const RoundingScope scope(mode);
  if (to_f32) {
    volatile float out;
    if (is_signed) {
      out = static_cast<float>(static_cast<int64_t>(u));
    } else if (u >> 63) {
      // The compiler's unsigned conversion halves with a sticky bit: right in every rounding
      // direction.
      out = 2 * static_cast<float>(static_cast<int64_t>((u >> 1) | (u & 1)));
    } else {
      out = static_cast<float>(static_cast<int64_t>(u));
    }
    return out;
  }
  volatile double out;
  if (is_signed || !(u >> 63)) {
    out = static_cast<double>(static_cast<int64_t>(u));
  } else {
    out = 2 * static_cast<double>(static_cast<int64_t>((u >> 1) | (u & 1)));
  }
  return out;
}

uint32_t HelpFmaF16(uint32_t, uint32_t a, uint32_t b, uint32_t c) {
  return ToSmall(kF16, RoundMode::kNearest,
                 FmaToOdd(FromSmall(kF16, a), FromSmall(kF16, b), FromSmall(kF16, c)));
}
uint32_t HelpFmaBf16(uint32_t, uint32_t a, uint32_t b, uint32_t c) {
  return ToSmall(kBf16, RoundMode::kNearest,
                 FmaToOdd(FromSmall(kBf16, a), FromSmall(kBf16, b), FromSmall(kBf16, c)));
}
uint32_t HelpF64ToF16(uint32_t mode, double value) {
  return ToSmall(kF16, static_cast<RoundMode>(mode), value);
}
uint32_t HelpF64ToBf16(uint32_t mode, double value) {
  return ToSmall(kBf16, static_cast<RoundMode>(mode), value);
}

uint32_t HelpFns(uint32_t mask, uint32_t base, uint32_t offset_bits) {
  // PTX ISA, fns: pseudo-code of the instruction's description.
  const auto offset = static_cast<int32_t>(offset_bits);
  if (offset == 0) return base < 32 && (mask >> base) & 1 ? base : ~0u;
  int64_t position = base;
  int64_t left = offset > 0 ? offset - 1 : -static_cast<int64_t>(offset) - 1;
  const int step = offset > 0 ? 1 : -1;
  left += 1;
  for (; position >= 0 && position < 32; position += step) {
    if ((mask >> position) & 1 && --left == 0) return static_cast<uint32_t>(position);
  }
  return ~0u;
}

}  // namespace smolvm::emulation
