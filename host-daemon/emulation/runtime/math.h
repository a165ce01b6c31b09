// Arithmetic that generated code does not do inline: directed rounding, half-precision fused
// operations, and the approximate functions, within the error bounds of the PTX ISA.
#pragma once

#include <cstdint>

namespace smolvm::emulation {

// The code generator passes these as integers.
enum class RoundMode : uint32_t { kNearest, kZero, kDown, kUp };
enum class FloatOp : uint32_t { kAdd, kSub, kMul, kDiv, kFma, kSqrt };

float HelpEx2F32(float x);
float HelpLg2F32(float x);
float HelpSinF32(float x);
float HelpCosF32(float x);
float HelpTanhF32(float x);
float HelpRoundedF32(uint32_t op, uint32_t mode, float a, float b, float c);
double HelpRoundedF64(uint32_t op, uint32_t mode, double a, double b, double c);
float HelpRoundF64ToF32(uint32_t mode, double value);
// The integer `bits` (signed or not) rounded to a float (to_f32) or a double.
double HelpIntToFloat(uint32_t to_f32, uint32_t mode, uint64_t bits, uint32_t is_signed);
// 16-bit patterns in and out, rounded once, to nearest; NaN results are canonical. `flags` is
// reserved.
uint32_t HelpFmaF16(uint32_t flags, uint32_t a, uint32_t b, uint32_t c);
uint32_t HelpFmaBf16(uint32_t flags, uint32_t a, uint32_t b, uint32_t c);
// One rounding from double.
uint32_t HelpF64ToF16(uint32_t mode, double value);
uint32_t HelpF64ToBf16(uint32_t mode, double value);
// PTX ISA, fns: the position of the nth set bit from `base`.
uint32_t HelpFns(uint32_t mask, uint32_t base, uint32_t offset);

}  // namespace smolvm::emulation
