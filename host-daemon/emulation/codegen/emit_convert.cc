// cvt in its many forms (PTX ISA 9.7.9.21).
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Rounding;

namespace {

using ptx::Type;

bool IsIntegerLike(Type type) { return ptx::IsInteger(type) || ptx::IsBits(type); }
bool IsScalarFloat(Type type) {
  return type == Type::kF16 || type == Type::kBf16 || type == Type::kF32 || type == Type::kF64;
}
bool ToIntegral(Rounding rounding) {
  return rounding == Rounding::kRni || rounding == Rounding::kRzi || rounding == Rounding::kRmi ||
         rounding == Rounding::kRpi;
}

}  // namespace

// A floating operand in f32 or f64.
V FunctionEmitter::FloatOperand(const Instruction& i, const Operand& operand, Type type) {
  if (IsHalf(type)) return HalfToFloat(ReadBits(operand, type), IsBf16(type));
  if (operand.is_register() && ptx::BitsOf(f.registers[operand.index].type) > ptx::BitsOf(type)) {
    return FromBits(ReadBits(operand, type), type);
  }
  V value = Read(operand, type);
  return i.modifiers.ftz && type == Type::kF32 ? Flush(value) : value;
}

void FunctionEmitter::EmitCvt(const Instruction& i) {
  const Type to = i.type();
  const Type from = i.source_type();
  if (i.modifiers.scaled || i.modifiers.rounding == Rounding::kRs) return Refuse(i);
  if (to == Type::kF16x2 || to == Type::kBf16x2) return ConvertPair(i, to);
  if (to == Type::kTf32 && from == Type::kF32) {
    return WriteBits(i.operands[0], ToTf32(i, Read(i.operands[1], from)), Type::kB32);
  }
  if (i.operands.size() != 2) return Refuse(i);
  if (IsIntegerLike(to) && IsIntegerLike(from)) return ConvertInteger(i, to, from);
  if (IsScalarFloat(to) && IsIntegerLike(from)) return ConvertIntegerToFloat(i, to, from);
  if (IsIntegerLike(to) && IsScalarFloat(from)) return ConvertFloatToInteger(i, to, from);
  if (IsScalarFloat(to) && IsScalarFloat(from)) return ConvertFloat(i, to, from);
  Refuse(i);
}

void FunctionEmitter::ConvertInteger(const Instruction& i, Type to, Type from) {
  const unsigned to_bits = ptx::BitsOf(to);
  const bool from_signed = ptx::IsSigned(from);
  V value = ReadBits(i.operands[1], from);
  if (i.modifiers.sat) {
    // Clamp in a width that holds both ranges.
    const bool to_signed = ptx::IsSigned(to);
    V wide = Resize(value, 128, from_signed);
    llvm::APInt least =
        to_signed ? llvm::APInt::getSignedMinValue(to_bits).sext(128) : llvm::APInt(128, 0);
    llvm::APInt most = to_signed ? llvm::APInt::getSignedMaxValue(to_bits).sext(128)
                                 : llvm::APInt::getMaxValue(to_bits).zext(128);
    wide = Intrinsic(llvm::Intrinsic::smax, {wide, llvm::ConstantInt::get(Int(128), least)});
    wide = Intrinsic(llvm::Intrinsic::smin, {wide, llvm::ConstantInt::get(Int(128), most)});
    value = b.CreateTrunc(wide, Int(to_bits));
  } else {
    value = Resize(value, to_bits, from_signed);
  }
  WriteBits(i.operands[0], value, to);
}

void FunctionEmitter::ConvertIntegerToFloat(const Instruction& i, Type to, Type from) {
  const bool is_signed = ptx::IsSigned(from);
  V value = ReadBits(i.operands[1], from);
  const RoundMode mode = ModeOf(i.modifiers.rounding);
  const bool narrow = ptx::BitsOf(from) <= 32;
  if (to == Type::kF32 || to == Type::kF64) {
    V result;
    llvm::Type* type = TypeFor(to);
    if (mode == RoundMode::kNearest || (narrow && to == Type::kF64)) {
      result = is_signed ? b.CreateSIToFP(value, type) : b.CreateUIToFP(value, type);
    } else {
      result =
          CallHelper(Helper::kIntToFloat, {I32(to == Type::kF32), I32(static_cast<uint32_t>(mode)),
                                           Resize(value, 64, is_signed), I32(is_signed)});
      if (to == Type::kF32) result = b.CreateFPTrunc(result, type);  // exact
    }
    return Write(i.operands[0], i.modifiers.sat ? Saturate(result) : result, to);
  }
  // To 16 bits through f64: exact for 32-bit integers. A 64-bit one that f64 rounds overflows f16;
  // for bf16 it is rounded to odd first, so that the second rounding is right.
  V wide = Resize(value, 64, is_signed);
  V exact;
  if (narrow || to == Type::kF16) {
    exact =
        is_signed ? b.CreateSIToFP(wide, b.getDoubleTy()) : b.CreateUIToFP(wide, b.getDoubleTy());
  } else {
    V down = CallHelper(Helper::kIntToFloat, {I32(0), I32(static_cast<uint32_t>(RoundMode::kZero)),
                                              wide, I32(is_signed)});
    V up = CallHelper(Helper::kIntToFloat,
                      {I32(0), I32(static_cast<uint32_t>(RoundMode::kUp)), wide, I32(is_signed)});
    V low = CallHelper(Helper::kIntToFloat, {I32(0), I32(static_cast<uint32_t>(RoundMode::kDown)),
                                             wide, I32(is_signed)});
    V inexact = b.CreateFCmpONE(up, low);
    V odd = b.CreateOr(ToBits(down), I64(1));
    exact = b.CreateSelect(inexact, b.CreateBitCast(odd, b.getDoubleTy()), down);
  }
  const Helper helper = to == Type::kBf16 ? Helper::kF64ToBf16 : Helper::kF64ToF16;
  V bits = CallHelper(helper, {I32(static_cast<uint32_t>(mode)), exact});
  WriteBits(i.operands[0], b.CreateTrunc(bits, b.getInt16Ty()), to);
}

V FunctionEmitter::RoundToIntegral(V value, Rounding rounding) {
  switch (ModeOf(rounding)) {
    case RoundMode::kZero:
      return Intrinsic(llvm::Intrinsic::trunc, {value});
    case RoundMode::kDown:
      return Intrinsic(llvm::Intrinsic::floor, {value});
    case RoundMode::kUp:
      return Intrinsic(llvm::Intrinsic::ceil, {value});
    default:
      return Intrinsic(llvm::Intrinsic::roundeven, {value});
  }
}

// Out-of-range values clamp. NaN becomes 0, or the value with only the top bit set where the source
// or the destination has 64 bits (PTX ISA 9.7.9.21).
void FunctionEmitter::ConvertFloatToInteger(const Instruction& i, Type to, Type from) {
  const unsigned bits = ptx::BitsOf(to);
  V value = RoundToIntegral(FloatOperand(i, i.operands[1], from), i.modifiers.rounding);
  const auto id = ptx::IsSigned(to) ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat;
  V result =
      b.CreateIntrinsic(id, {LaneBuilder::ShapedAs(value, Int(bits)), value->getType()}, {value});
  if (from == Type::kF64 || bits == 64) {
    V top = llvm::ConstantInt::get(c, llvm::APInt::getSignMask(bits));
    result = b.CreateSelect(IsNaN(value), top, result);
  }
  WriteBits(i.operands[0], result, to);
}

V FunctionEmitter::NarrowToHalf(const Instruction& i, V value, bool is_bf16) {
  const RoundMode mode = ModeOf(i.modifiers.rounding);
  V bits;
  if (value->getType()->getScalarType()->isFloatTy() && mode == RoundMode::kNearest) {
    bits = FloatToHalf(value, is_bf16);
  } else {
    V wide = value->getType()->getScalarType()->isFloatTy() ? b.CreateFPExt(value, b.getDoubleTy())
                                                            : value;
    bits = CallHelper(is_bf16 ? Helper::kF64ToBf16 : Helper::kF64ToF16,
                      {I32(static_cast<uint32_t>(mode)), wide});
    bits = b.CreateTrunc(bits, b.getInt16Ty());
  }
  if (i.modifiers.satfinite) {
    // Infinity and overflow become the largest finite value; NaN stays canonical.
    V infinity = b.getInt16(is_bf16 ? 0x7f80 : 0x7c00);
    V is_infinite = b.CreateICmpEQ(b.CreateAnd(bits, b.getInt16(0x7fff)), infinity);
    bits = b.CreateSelect(is_infinite, b.CreateSub(bits, b.getInt16(1)), bits);
  }
  if (i.modifiers.relu) {
    V nan = b.CreateICmpEQ(bits, b.getInt16(0x7fff));
    V negative = b.CreateICmpSLT(bits, b.getInt16(0));
    bits = b.CreateSelect(b.CreateAnd(negative, b.CreateNot(nan)), b.getInt16(0), bits);
  }
  return bits;
}

void FunctionEmitter::ConvertFloat(const Instruction& i, Type to, Type from) {
  V value = FloatOperand(i, i.operands[1], from);
  const Rounding rounding = i.modifiers.rounding;
  if (ToIntegral(rounding)) value = RoundToIntegral(value, rounding);
  if (IsHalf(to)) {
    V bits;
    if (to == from) {
      bits = FloatToHalf(i.modifiers.sat ? Saturate(value) : value, IsBf16(to));
    } else {
      bits = NarrowToHalf(i, i.modifiers.sat ? Saturate(value) : value, IsBf16(to));
    }
    return WriteBits(i.operands[0], bits, to);
  }
  if (to == Type::kF32 && value->getType()->getScalarType()->isDoubleTy()) {
    const RoundMode mode = ToIntegral(rounding) ? RoundMode::kNearest : ModeOf(rounding);
    value = mode == RoundMode::kNearest
                ? b.CreateFPTrunc(value, b.getFloatTy())
                : CallHelper(Helper::kRoundF64ToF32, {I32(static_cast<uint32_t>(mode)), value});
    if (i.modifiers.ftz) value = Flush(value);
  } else if (to == Type::kF64 && value->getType()->getScalarType()->isFloatTy()) {
    value = b.CreateFPExt(value, b.getDoubleTy());
  }
  if (i.modifiers.sat) value = Saturate(value);
  Write(i.operands[0], value, to);
}

// cvt.rn.f16x2.f32 d, a, b: a to the upper half, b to the lower.
void FunctionEmitter::ConvertPair(const Instruction& i, Type to) {
  if (i.source_type() != Type::kF32 || i.operands.size() != 3) return Refuse(i);
  const bool is_bf16 = to == Type::kBf16x2;
  const auto half = [&](size_t k) {
    return b.CreateZExt(NarrowToHalf(i, FloatOperand(i, i.operands[k], Type::kF32), is_bf16),
                        b.getInt32Ty());
  };
  WriteBits(i.operands[0], b.CreateOr(b.CreateShl(half(1), 16), half(2)), Type::kB32);
}

// 10 bits of fraction in a 32-bit word.
V FunctionEmitter::ToTf32(const Instruction& i, V value) {
  V bits = ToBits(Canonical(value));
  V special = b.CreateICmpEQ(b.CreateAnd(bits, I32(0x7f800000)), I32(0x7f800000));
  V rounded;
  switch (i.modifiers.rounding) {
    case Rounding::kRz:
      rounded = bits;
      break;
    case Rounding::kRna:
      rounded = b.CreateAdd(bits, I32(0x1000));
      break;  // half away from zero
    default: {
      V odd = b.CreateAnd(b.CreateLShr(bits, 13), I32(1));
      rounded = b.CreateAdd(bits, b.CreateAdd(odd, I32(0xfff)));
    }
  }
  V result = b.CreateSelect(special, bits, b.CreateAnd(rounded, I32(~0x1fffu)));
  if (i.modifiers.satfinite) {
    V infinite = b.CreateICmpEQ(b.CreateAnd(result, I32(0x7fffffff)), I32(0x7f800000));
    V largest = b.CreateOr(b.CreateAnd(result, I32(0x80000000)), I32(0x7f7fe000));
    result = b.CreateSelect(infinite, largest, result);
  }
  if (i.modifiers.relu) {
    V negative = b.CreateAnd(b.CreateICmpSLT(result, I32(0)), b.CreateNot(IsNaN(value)));
    result = b.CreateSelect(negative, I32(0), result);
  }
  return result;
}

// cvt.pack.sat.{u8,s8,u16,s16}.s32{.b32} d, a, b{, c}: clamps a and b and packs them below c's low
// bits.
void FunctionEmitter::EmitCvtPack(const Instruction& i) {
  const Type to = i.type();
  const unsigned bits = ptx::BitsOf(to);
  if (bits != 8 && bits != 16) return Refuse(i);
  const auto clamp = [&](const Operand& operand) {
    V value = ReadBits(operand, Type::kS32);
    const bool is_signed = ptx::IsSigned(to);
    V least = is_signed ? b.getInt32(static_cast<uint32_t>(-(1 << (bits - 1)))) : b.getInt32(0);
    V most = is_signed ? b.getInt32((1u << (bits - 1)) - 1) : b.getInt32((1u << bits) - 1);
    value = Intrinsic(llvm::Intrinsic::smax, {value, least});
    value = Intrinsic(llvm::Intrinsic::smin, {value, most});
    return b.CreateAnd(value, I32((1u << bits) - 1));
  };
  V packed = b.CreateOr(b.CreateShl(clamp(i.operands[1]), bits), clamp(i.operands[2]));
  if (i.operands.size() == 4) {
    if (bits == 16) return Refuse(i);
    packed = b.CreateOr(packed, b.CreateShl(ReadBits(i.operands[3], Type::kB32), 16));
  }
  WriteBits(i.operands[0], packed, Type::kB32);
}

}  // namespace smolvm::emulation::codegen
