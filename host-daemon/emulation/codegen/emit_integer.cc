// Integer arithmetic. Types decide: floating-point forms of the same opcodes go to emit_float.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using llvm::Intrinsic::ID;
using ptx::Half;
using ptx::Opcode;

namespace {

bool IsPackedInteger(ptx::Type type) {
  return type == ptx::Type::kU16x2 || type == ptx::Type::kS16x2;
}

}  // namespace

// Two 16-bit lanes in one register; `lane` gets (x, y, is_signed).
V FunctionEmitter::PackedInteger(const Instruction& i, const std::function<V(V, V, bool)>& lane) {
  V x = ReadBits(i.operands[1], i.type());
  V y = ReadBits(i.operands[2], i.type());
  V result = I32(0);
  for (unsigned k = 0; k < 2; ++k) {
    const auto part = [&](V bits) {
      return b.CreateTrunc(b.CreateLShr(bits, 16 * k), b.getInt16Ty());
    };
    V value = lane(part(x), part(y), ptx::IsSigned(i.type()));
    result = b.CreateOr(result, b.CreateShl(b.CreateZExt(value, b.getInt32Ty()), 16 * k));
  }
  return result;
}

// Subtraction is x + ~y + 1, and CC.CF the carry of that sum: after sub.cc it is 1 where nothing
// was borrowed. The ISA calls it a borrow, which is the same while sub.cc is followed by subc
// alone; but ptxas has one flag for all, so that sub.cc before addc or madc, and add.cc before
// subc, see this.
void FunctionEmitter::AddWithCarry(const Instruction& i, V x, V y, bool subtract, bool carry_in) {
  const ID id =
      subtract ? llvm::Intrinsic::usub_with_overflow : llvm::Intrinsic::uadd_with_overflow;
  const auto inverted_for_subtraction = [&](V flag) { return subtract ? b.CreateNot(flag) : flag; };
  V first = Intrinsic(id, {x, y});
  V value = b.CreateExtractValue(first, 0);
  V flag = b.CreateExtractValue(first, 1);
  if (carry_in) {
    V in = b.CreateZExt(inverted_for_subtraction(LoadSlot(carry)), value->getType());
    V second = Intrinsic(id, {value, in});
    value = b.CreateExtractValue(second, 0);
    flag = b.CreateOr(flag, b.CreateExtractValue(second, 1));
  }
  if (i.modifiers.cc) StoreSlot(carry, inverted_for_subtraction(flag), false);
  WriteBits(i.operands[0], value, i.type());
}

void FunctionEmitter::EmitCarryChain(const Instruction& i) {
  const bool subtract = i.opcode == Opcode::kSubc;
  AddWithCarry(i, ReadBits(i.operands[1], i.type()), ReadBits(i.operands[2], i.type()), subtract,
               true);
}

void FunctionEmitter::EmitAdd(const Instruction& i) {
  if (ptx::IsFloat(i.type())) return EmitFloatBinary(i, FloatOp::kAdd);
  if (IsPackedInteger(i.type())) {
    return WriteBits(i.operands[0],
                     PackedInteger(i, [&](V x, V y, bool) { return b.CreateAdd(x, y); }), i.type());
  }
  V x = ReadBits(i.operands[1], i.type());
  V y = ReadBits(i.operands[2], i.type());
  if (i.modifiers.cc) return AddWithCarry(i, x, y, false, false);
  if (i.modifiers.sat)
    return WriteBits(i.operands[0], Intrinsic(llvm::Intrinsic::sadd_sat, {x, y}), i.type());
  WriteBits(i.operands[0], b.CreateAdd(x, y), i.type());
}

void FunctionEmitter::EmitSub(const Instruction& i) {
  if (ptx::IsFloat(i.type())) return EmitFloatBinary(i, FloatOp::kSub);
  V x = ReadBits(i.operands[1], i.type());
  V y = ReadBits(i.operands[2], i.type());
  if (i.modifiers.cc) return AddWithCarry(i, x, y, true, false);
  if (i.modifiers.sat)
    return WriteBits(i.operands[0], Intrinsic(llvm::Intrinsic::ssub_sat, {x, y}), i.type());
  WriteBits(i.operands[0], b.CreateSub(x, y), i.type());
}

V FunctionEmitter::MulHigh(V x, V y, bool is_signed) {
  const unsigned bits = x->getType()->getScalarSizeInBits();
  V wide = b.CreateMul(Resize(x, 2 * bits, is_signed), Resize(y, 2 * bits, is_signed));
  return b.CreateTrunc(b.CreateLShr(wide, bits), x->getType());
}

// The product that mul and mad ask for; *result is its type (twice as wide for .wide).
V FunctionEmitter::Product(const Instruction& i, Type type, Type* result) {
  const bool is_signed = ptx::IsSigned(type);
  V x = ReadBits(i.operands[1], type);
  V y = ReadBits(i.operands[2], type);
  *result = type;
  switch (i.modifiers.half) {
    case Half::kHi:
      return MulHigh(x, y, is_signed);
    case Half::kWide: {
      const unsigned bits = 2 * ptx::BitsOf(type);
      *result = bits == 32   ? (is_signed ? Type::kS32 : Type::kU32)
                : bits == 64 ? (is_signed ? Type::kS64 : Type::kU64)
                             : Type::kB128;
      return b.CreateMul(Resize(x, bits, is_signed), Resize(y, bits, is_signed));
    }
    default:
      return b.CreateMul(x, y);
  }
}

void FunctionEmitter::EmitMul(const Instruction& i) {
  if (ptx::IsFloat(i.type())) return EmitFloatBinary(i, FloatOp::kMul);
  Type type;
  V product = Product(i, i.type(), &type);
  WriteBits(i.operands[0], product, type);
}

void FunctionEmitter::EmitMad(const Instruction& i) {
  if (ptx::IsFloat(i.type())) return EmitFma(i);
  Type type;
  V product = Product(i, i.type(), &type);
  V addend = ReadBits(i.operands[3], type);
  const bool carry_in = i.opcode == Opcode::kMadc;
  if (!i.modifiers.cc && !carry_in) {
    // .hi.s32 saturates on request.
    V sum = i.modifiers.sat ? Intrinsic(llvm::Intrinsic::sadd_sat, {product, addend})
                            : b.CreateAdd(product, addend);
    return WriteBits(i.operands[0], sum, type);
  }
  AddWithCarry(i, product, addend, false, carry_in);
}

// 24-bit operands, 48-bit product: .lo its low 32 bits, .hi bits 16 to 47 (PTX ISA 9.7.1.5).
void FunctionEmitter::EmitMul24(const Instruction& i) {
  const bool is_signed = ptx::IsSigned(i.type());
  const auto operand = [&](const Operand& o) {
    V value = b.CreateTrunc(ReadBits(o, i.type()), Int(24));
    return Resize(value, 64, is_signed);
  };
  V product = b.CreateMul(operand(i.operands[1]), operand(i.operands[2]));
  if (i.modifiers.half == Half::kHi) product = b.CreateLShr(product, 16);
  V result = b.CreateTrunc(product, b.getInt32Ty());
  if (i.opcode == Opcode::kMad24) {
    V addend = ReadBits(i.operands[3], i.type());
    result = i.modifiers.sat ? Intrinsic(llvm::Intrinsic::sadd_sat, {result, addend})
                             : b.CreateAdd(result, addend);
  }
  WriteBits(i.operands[0], result, i.type());
}

void FunctionEmitter::EmitSad(const Instruction& i) {
  V x = ReadBits(i.operands[1], i.type());
  V y = ReadBits(i.operands[2], i.type());
  V less = ptx::IsSigned(i.type()) ? b.CreateICmpSLT(x, y) : b.CreateICmpULT(x, y);
  V difference = b.CreateSelect(less, b.CreateSub(y, x), b.CreateSub(x, y));
  WriteBits(i.operands[0], b.CreateAdd(ReadBits(i.operands[3], i.type()), difference), i.type());
}

// Quotient and remainder that never trap. Division by zero gives what NVIDIA's hardware does: all
// ones, and the dividend (the ISA says "machine-specific"); the most negative integer over -1
// wraps.
std::pair<V, V> FunctionEmitter::SafeDivision(V x, V y, bool is_signed) {
  llvm::Type* type = x->getType();
  V zero = llvm::ConstantInt::get(type, 0);
  V one = llvm::ConstantInt::get(type, 1);
  V ones = llvm::Constant::getAllOnesValue(type);
  V by_zero = b.CreateICmpEQ(y, zero);
  if (!is_signed) {
    V divisor = b.CreateSelect(by_zero, one, y);
    return {b.CreateSelect(by_zero, ones, b.CreateUDiv(x, divisor)),
            b.CreateSelect(by_zero, x, b.CreateURem(x, divisor))};
  }
  V by_minus_one = b.CreateICmpEQ(y, ones);
  V divisor = b.CreateSelect(b.CreateOr(by_zero, by_minus_one), one, y);
  V quotient = b.CreateSelect(by_minus_one, b.CreateSub(zero, x), b.CreateSDiv(x, divisor));
  V remainder = b.CreateSelect(by_minus_one, zero, b.CreateSRem(x, divisor));
  return {b.CreateSelect(by_zero, ones, quotient), b.CreateSelect(by_zero, x, remainder)};
}

void FunctionEmitter::EmitDiv(const Instruction& i) {
  if (ptx::IsFloat(i.type())) return EmitFloatDiv(i);
  V x = ReadBits(i.operands[1], i.type());
  V y = ReadBits(i.operands[2], i.type());
  WriteBits(i.operands[0], SafeDivision(x, y, ptx::IsSigned(i.type())).first, i.type());
}

void FunctionEmitter::EmitRem(const Instruction& i) {
  V x = ReadBits(i.operands[1], i.type());
  V y = ReadBits(i.operands[2], i.type());
  WriteBits(i.operands[0], SafeDivision(x, y, ptx::IsSigned(i.type())).second, i.type());
}

void FunctionEmitter::EmitAbs(const Instruction& i) {
  const Type type = i.type();
  if (IsHalf(type)) {
    const bool packed = ptx::BitsOf(type) == 32;
    V mask = packed ? static_cast<V>(I32(0x7fff7fff)) : static_cast<V>(b.getInt16(0x7fff));
    return WriteBits(i.operands[0], b.CreateAnd(ReadBits(i.operands[1], type), mask), type);
  }
  if (ptx::IsFloat(type)) {
    V x = FlushIf(i, Read(i.operands[1], type));
    return Write(i.operands[0], Intrinsic(llvm::Intrinsic::fabs, {x}), type);
  }
  WriteBits(i.operands[0],
            Intrinsic(llvm::Intrinsic::abs, {ReadBits(i.operands[1], type), b.getFalse()}), type);
}

void FunctionEmitter::EmitNeg(const Instruction& i) {
  const Type type = i.type();
  if (IsHalf(type)) {
    const bool packed = ptx::BitsOf(type) == 32;
    V mask = packed ? static_cast<V>(I32(0x80008000)) : static_cast<V>(b.getInt16(0x8000));
    return WriteBits(i.operands[0], b.CreateXor(ReadBits(i.operands[1], type), mask), type);
  }
  if (ptx::IsFloat(type)) {
    return Write(i.operands[0], b.CreateFNeg(FlushIf(i, Read(i.operands[1], type))), type);
  }
  WriteBits(i.operands[0], b.CreateNeg(ReadBits(i.operands[1], type)), type);
}

void FunctionEmitter::EmitMinMax(const Instruction& i) {
  const bool is_max = i.opcode == Opcode::kMax;
  const Type type = i.type();
  if (ptx::IsFloat(type)) return EmitFloatMinMax(i, is_max);
  const auto pick = [&](V x, V y, bool is_signed) {
    const ID id = is_signed ? (is_max ? llvm::Intrinsic::smax : llvm::Intrinsic::smin)
                            : (is_max ? llvm::Intrinsic::umax : llvm::Intrinsic::umin);
    V value = Intrinsic(id, {x, y});
    if (i.modifiers.relu)
      value = Intrinsic(llvm::Intrinsic::smax, {value, llvm::ConstantInt::get(x->getType(), 0)});
    return value;
  };
  if (IsPackedInteger(type)) return WriteBits(i.operands[0], PackedInteger(i, pick), type);
  V x = ReadBits(i.operands[1], type);
  V y = ReadBits(i.operands[2], type);
  WriteBits(i.operands[0], pick(x, y, ptx::IsSigned(type)), type);
}

// dp4a: four byte products; dp2a: two 16-bit by byte products, the bytes from the low or the high
// half of b.
void FunctionEmitter::EmitDp(const Instruction& i) {
  const bool a_signed = ptx::IsSigned(i.types[0]);
  const bool b_signed = ptx::IsSigned(i.source_type());
  V x = ReadBits(i.operands[1], Type::kB32);
  V y = ReadBits(i.operands[2], Type::kB32);
  V sum = ReadBits(i.operands[3], Type::kB32);
  const auto part = [&](V bits, unsigned shift, unsigned width, bool is_signed) {
    return Resize(b.CreateTrunc(b.CreateLShr(bits, shift), Int(width)), 32, is_signed);
  };
  const unsigned lanes = i.opcode == Opcode::kDp4a ? 4 : 2;
  const unsigned width = 32 / lanes;
  const unsigned first = i.opcode == Opcode::kDp2a && i.modifiers.half == Half::kHi ? 16 : 0;
  for (unsigned k = 0; k < lanes; ++k) {
    sum = b.CreateAdd(
        sum, b.CreateMul(part(x, k * width, width, a_signed), part(y, first + k * 8, 8, b_signed)));
  }
  WriteBits(i.operands[0], sum, Type::kB32);
}

}  // namespace smolvm::emulation::codegen
