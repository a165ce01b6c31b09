// Logic, shifts and bit fields. Shift counts clamp (PTX ISA 9.7.8), where LLVM's would be
// undefined.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Clamp;
using ptx::Opcode;
using ptx::Permute;

namespace {
llvm::Constant* Number(V like, uint64_t value) {
  return llvm::ConstantInt::get(like->getType(), value);
}
}  // namespace

V FunctionEmitter::ShiftLeft(V x, V count) {
  const unsigned bits = x->getType()->getScalarSizeInBits();
  V wide = Resize(count, bits < 32 ? 32 : bits, false);
  V in_range = b.CreateICmpULT(count, Number(count, bits));
  V shifted = b.CreateShl(x, b.CreateSelect(in_range, Resize(wide, bits, false), Number(x, 0)));
  return b.CreateSelect(in_range, shifted, Number(x, 0));
}

V FunctionEmitter::ShiftRight(V x, V count, bool is_signed) {
  const unsigned bits = x->getType()->getScalarSizeInBits();
  V in_range = b.CreateICmpULT(count, Number(count, bits));
  V clamped = Resize(b.CreateSelect(in_range, count, Number(count, bits - 1)), bits, false);
  if (is_signed) return b.CreateAShr(x, clamped);
  return b.CreateSelect(in_range, b.CreateLShr(x, clamped), Number(x, 0));
}

void FunctionEmitter::EmitLogic(const Instruction& i) {
  const Type type = i.type();
  const bool is_predicate = type == Type::kPred;
  const auto read = [&](size_t k) {
    return is_predicate ? ReadPredicate(i.operands[k]) : ReadBits(i.operands[k], type);
  };
  V x = read(1);
  V result;
  switch (i.opcode) {
    case Opcode::kNot:
      result = b.CreateNot(x);
      break;
    case Opcode::kAnd:
      result = b.CreateAnd(x, read(2));
      break;
    case Opcode::kOr:
      result = b.CreateOr(x, read(2));
      break;
    default:
      result = b.CreateXor(x, read(2));
      break;
  }
  if (is_predicate) return WritePredicate(i.operands[0], result);
  WriteBits(i.operands[0], result, type);
}

void FunctionEmitter::EmitCnot(const Instruction& i) {
  V x = ReadBits(i.operands[1], i.type());
  WriteBits(i.operands[0], b.CreateZExt(b.CreateICmpEQ(x, Number(x, 0)), x->getType()), i.type());
}

// A function of two bits by its truth table: bit 2x + y.
V FunctionEmitter::Lookup2(unsigned table, V x, V y) {
  switch (table & 15) {
    case 0x0:
      return Number(x, 0);
    case 0x1:
      return b.CreateNot(b.CreateOr(x, y));
    case 0x2:
      return b.CreateAnd(b.CreateNot(x), y);
    case 0x3:
      return b.CreateNot(x);
    case 0x4:
      return b.CreateAnd(x, b.CreateNot(y));
    case 0x5:
      return b.CreateNot(y);
    case 0x6:
      return b.CreateXor(x, y);
    case 0x7:
      return b.CreateNot(b.CreateAnd(x, y));
    case 0x8:
      return b.CreateAnd(x, y);
    case 0x9:
      return b.CreateNot(b.CreateXor(x, y));
    case 0xa:
      return y;
    case 0xb:
      return b.CreateOr(b.CreateNot(x), y);
    case 0xc:
      return x;
    case 0xd:
      return b.CreateOr(x, b.CreateNot(y));
    case 0xe:
      return b.CreateOr(x, y);
    default:
      return llvm::Constant::getAllOnesValue(x->getType());
  }
}

void FunctionEmitter::EmitLop3(const Instruction& i) {
  if (!i.operands[4].is_immediate()) return Refuse(i);
  const auto table = static_cast<unsigned>(i.operands[4].bits & 0xff);
  V x = ReadBits(i.operands[1], Type::kB32);
  V y = ReadBits(i.operands[2], Type::kB32);
  V z = ReadBits(i.operands[3], Type::kB32);
  V when_set = Lookup2(table >> 4, y, z);
  V when_clear = Lookup2(table & 15, y, z);
  V result = (table >> 4) == (table & 15)
                 ? when_set
                 : b.CreateOr(b.CreateAnd(x, when_set), b.CreateAnd(b.CreateNot(x), when_clear));
  WriteBits(i.operands[0], result, Type::kB32);
  if (i.modifiers.boolean == ptx::Bool::kNone) return;
  V predicate = CombineBool(i, b.CreateICmpNE(result, I32(0)), i.operands[5]);
  WritePredicate(i.second_destination, predicate);
}

void FunctionEmitter::EmitShift(const Instruction& i) {
  V x = ReadBits(i.operands[1], i.type());
  V count = ReadBits(i.operands[2], Type::kU32);
  V result = i.opcode == Opcode::kShl ? ShiftLeft(x, count)
                                      : ShiftRight(x, count, ptx::IsSigned(i.type()));
  WriteBits(i.operands[0], result, i.type());
}

// The funnel b:a; .l gives the high word of (b:a << n), .r the low word of (b:a >> n).
void FunctionEmitter::EmitShf(const Instruction& i) {
  V low = b.CreateZExt(ReadBits(i.operands[1], Type::kB32), b.getInt64Ty());
  V high = b.CreateZExt(ReadBits(i.operands[2], Type::kB32), b.getInt64Ty());
  V count = ReadBits(i.operands[3], Type::kB32);
  count = i.modifiers.clamp == Clamp::kWrap ? b.CreateAnd(count, I32(31))
                                            : Intrinsic(llvm::Intrinsic::umin, {count, I32(32)});
  count = b.CreateZExt(count, b.getInt64Ty());
  V both = b.CreateOr(b.CreateShl(high, 32), low);
  V result = i.modifiers.direction == ptx::Direction::kLeft
                 ? b.CreateLShr(b.CreateShl(both, count), 32)
                 : b.CreateLShr(both, count);
  WriteBits(i.operands[0], b.CreateTrunc(result, b.getInt32Ty()), Type::kB32);
}

// `count` ones from bit 0, all of them from `width` on. `count` is 32-bit.
V FunctionEmitter::LowMask(V count, unsigned width) {
  V one = llvm::ConstantInt::get(Int(width), 1);
  V all = b.CreateICmpUGE(count, I32(width));
  V shift = Resize(b.CreateSelect(all, I32(0), count), width, false);
  V ones = llvm::Constant::getAllOnesValue(Int(width));
  return b.CreateSelect(all, ones, b.CreateSub(b.CreateShl(one, shift), one));
}

// How much of a field at `position` with `length` lies inside the word.
V FunctionEmitter::FieldLength(V position, V length, unsigned width) {
  V room = Intrinsic(llvm::Intrinsic::usub_sat, {I32(width), position});
  return Intrinsic(llvm::Intrinsic::umin, {length, room});
}

void FunctionEmitter::EmitBfe(const Instruction& i) {
  const Type type = i.type();
  const unsigned width = ptx::BitsOf(type);
  V x = ReadBits(i.operands[1], type);
  V position = b.CreateAnd(ReadBits(i.operands[2], Type::kU32), I32(0xff));
  V length = b.CreateAnd(ReadBits(i.operands[3], Type::kU32), I32(0xff));
  V mask = LowMask(FieldLength(position, length, width), width);
  V field = b.CreateAnd(ShiftRight(x, position, false), mask);
  if (ptx::IsSigned(type)) {
    // The bits above come from bit min(pos + len - 1, msb); none for an empty field.
    V top = Intrinsic(llvm::Intrinsic::umin,
                      {b.CreateSub(b.CreateAdd(position, length), I32(1)), I32(width - 1)});
    V sign = b.CreateTrunc(ShiftRight(x, top, false), b.getInt1Ty());
    sign = b.CreateAnd(sign, b.CreateICmpNE(length, I32(0)));
    field = b.CreateSelect(sign, b.CreateOr(field, b.CreateNot(mask)), field);
  }
  WriteBits(i.operands[0], field, type);
}

void FunctionEmitter::EmitBfi(const Instruction& i) {
  const Type type = i.type();
  const unsigned width = ptx::BitsOf(type);
  V field = ReadBits(i.operands[1], type);
  V base = ReadBits(i.operands[2], type);
  V position = b.CreateAnd(ReadBits(i.operands[3], Type::kU32), I32(0xff));
  V length = b.CreateAnd(ReadBits(i.operands[4], Type::kU32), I32(0xff));
  V mask = ShiftLeft(LowMask(FieldLength(position, length, width), width), position);
  V result = b.CreateOr(b.CreateAnd(base, b.CreateNot(mask)),
                        b.CreateAnd(ShiftLeft(field, position), mask));
  WriteBits(i.operands[0], result, type);
}

void FunctionEmitter::EmitBfind(const Instruction& i) {
  const Type type = i.type();
  const unsigned width = ptx::BitsOf(type);
  V x = ReadBits(i.operands[1], type);
  if (ptx::IsSigned(type))
    x = b.CreateXor(x, b.CreateAShr(x, width - 1));  // look for the first non-sign bit
  V zeros = Resize(Intrinsic(llvm::Intrinsic::ctlz, {x, b.getFalse()}), 32, false);
  V found = b.CreateICmpNE(x, Number(x, 0));
  V result = i.modifiers.shiftamt ? zeros : b.CreateSub(I32(width - 1), zeros);
  WriteBits(i.operands[0], b.CreateSelect(found, result, I32(~0u)), Type::kU32);
}

void FunctionEmitter::EmitCount(const Instruction& i) {
  V x = ReadBits(i.operands[1], i.type());
  V count = i.opcode == Opcode::kPopc ? Intrinsic(llvm::Intrinsic::ctpop, {x})
                                      : Intrinsic(llvm::Intrinsic::ctlz, {x, b.getFalse()});
  WriteBits(i.operands[0], Resize(count, 32, false), Type::kU32);
}

void FunctionEmitter::EmitBrev(const Instruction& i) {
  WriteBits(i.operands[0],
            Intrinsic(llvm::Intrinsic::bitreverse, {ReadBits(i.operands[1], i.type())}), i.type());
}

void FunctionEmitter::EmitBmsk(const Instruction& i) {
  V position = ReadBits(i.operands[1], Type::kU32);
  V width = ReadBits(i.operands[2], Type::kU32);
  if (i.modifiers.clamp == Clamp::kWrap) {
    position = b.CreateAnd(position, I32(31));
    width = b.CreateAnd(width, I32(31));
  }
  WriteBits(i.operands[0], ShiftLeft(LowMask(width, 32), position), Type::kB32);
}

void FunctionEmitter::EmitSzext(const Instruction& i) {
  V x = ReadBits(i.operands[1], Type::kB32);
  V width = ReadBits(i.operands[2], Type::kU32);
  if (i.modifiers.clamp == Clamp::kWrap) width = b.CreateAnd(width, I32(31));
  V mask = LowMask(width, 32);
  V low = b.CreateAnd(x, mask);
  if (ptx::IsSigned(i.type())) {
    V top = ShiftRight(x, b.CreateSub(Intrinsic(llvm::Intrinsic::umin, {width, I32(32)}), I32(1)),
                       false);
    V sign = b.CreateAnd(b.CreateTrunc(top, b.getInt1Ty()), b.CreateICmpNE(width, I32(0)));
    low = b.CreateSelect(sign, b.CreateOr(low, b.CreateNot(mask)), low);
  }
  WriteBits(i.operands[0], low, i.type());
}

// Eight bytes b:a, four selectors. The special modes make their selectors from the low bits of c.
void FunctionEmitter::EmitPrmt(const Instruction& i) {
  V low = b.CreateZExt(ReadBits(i.operands[1], Type::kB32), b.getInt64Ty());
  V high = b.CreateZExt(ReadBits(i.operands[2], Type::kB32), b.getInt64Ty());
  V both = b.CreateOr(b.CreateShl(high, 32), low);
  V control = ReadBits(i.operands[3], Type::kB32);
  V two = b.CreateAnd(control, I32(3));
  V result = I32(0);
  for (unsigned k = 0; k < 4; ++k) {
    V selector;
    switch (i.modifiers.permute) {
      case Permute::kF4e:
        selector = b.CreateAdd(two, I32(k));
        break;
      case Permute::kB4e:
        selector = b.CreateAnd(b.CreateSub(two, I32(k)), I32(7));
        break;
      case Permute::kRc8:
        selector = two;
        break;
      case Permute::kEcl:
        selector = Intrinsic(llvm::Intrinsic::umax, {two, I32(k)});
        break;
      case Permute::kEcr:
        selector = Intrinsic(llvm::Intrinsic::umin, {two, I32(k)});
        break;
      case Permute::kRc16:
        selector = b.CreateAdd(b.CreateShl(b.CreateAnd(control, I32(1)), 1), I32(k & 1));
        break;
      default:
        selector = b.CreateAnd(b.CreateLShr(control, 4 * k), I32(15));
        break;
    }
    V shift = b.CreateZExt(b.CreateShl(b.CreateAnd(selector, I32(7)), 3), b.getInt64Ty());
    V byte = b.CreateTrunc(b.CreateLShr(both, shift), b.getInt8Ty());
    if (i.modifiers.permute == Permute::kNone) {
      V replicate = b.CreateICmpNE(b.CreateAnd(selector, I32(8)), I32(0));
      byte = b.CreateSelect(replicate, b.CreateAShr(byte, 7), byte);
    }
    result = b.CreateOr(result, b.CreateShl(b.CreateZExt(byte, b.getInt32Ty()), 8 * k));
  }
  WriteBits(i.operands[0], result, Type::kB32);
}

void FunctionEmitter::EmitFns(const Instruction& i) {
  V result = CallHelper(Helper::kFns,
                        {ReadBits(i.operands[1], Type::kB32), ReadBits(i.operands[2], Type::kB32),
                         ReadBits(i.operands[3], Type::kB32)});
  WriteBits(i.operands[0], result, Type::kB32);
}

}  // namespace smolvm::emulation::codegen
