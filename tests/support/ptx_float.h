// Floating-point formats as bits. See ptx_arithmetic.h.
#pragma once

#include <cstdint>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::ptx_interpreter {

using emulation::ptx::Rounding;
using emulation::ptx::Type;

struct Format {
  unsigned exponent_bits;
  unsigned fraction_bits;
  unsigned width() const { return 1 + exponent_bits + fraction_bits; }
};
// .f16, .bf16, .f32, .f64.
Format FormatOf(Type type);

bool IsNan(Type type, uint64_t bits);
bool IsInfinite(Type type, uint64_t bits);
bool IsSubnormal(Type type, uint64_t bits);
bool IsZero(Type type, uint64_t bits);
uint64_t CanonicalNan(Type type);
uint64_t SignBit(Type type);
// Subnormals become zeroes of the same sign.
uint64_t FlushSubnormal(Type type, uint64_t bits);

// (-1)^negative × significand × 2^exponent, rounded once. `sticky`: there is more behind the
// significand's last bit.
uint64_t Round(bool negative, unsigned __int128 significand, int exponent, bool sticky, Type type,
               Rounding rounding);

// Exact for every format; NaN for NaN.
double ToDouble(Type type, uint64_t bits);
// Of a value that double holds exactly, or that was rounded to odd.
uint64_t FromDouble(double value, Type type, Rounding rounding);

// a + b, a × b + c and so on, rounded once to `type`. Division and square roots too.
uint64_t Add(Type type, uint64_t a, uint64_t b, Rounding rounding);
uint64_t Multiply(Type type, uint64_t a, uint64_t b, Rounding rounding);
uint64_t Fma(Type type, uint64_t a, uint64_t b, uint64_t c, Rounding rounding);
uint64_t Divide(Type type, uint64_t a, uint64_t b, Rounding rounding);
uint64_t SquareRoot(Type type, uint64_t a, Rounding rounding);

}  // namespace smolvm::ptx_interpreter
