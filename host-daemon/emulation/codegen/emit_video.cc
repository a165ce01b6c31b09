// Video instructions (PTX ISA 9.7.18): scalar ones over a selected byte or half, and SIMD ones over
// two or four lanes.
//
// All work on 34 bits or fewer in the ISA's pseudo-code; 64 bits serve here.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Reduction;
using ptx::Selector;

namespace {

enum class Operation { kAdd, kSub, kAbsdiff, kMin, kMax, kAverage, kSet, kShl, kShr, kNone };

Operation OperationOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kVadd:
    case Opcode::kVadd2:
    case Opcode::kVadd4:
      return Operation::kAdd;
    case Opcode::kVsub:
    case Opcode::kVsub2:
    case Opcode::kVsub4:
      return Operation::kSub;
    case Opcode::kVabsdiff:
    case Opcode::kVabsdiff2:
    case Opcode::kVabsdiff4:
      return Operation::kAbsdiff;
    case Opcode::kVmin:
    case Opcode::kVmin2:
    case Opcode::kVmin4:
      return Operation::kMin;
    case Opcode::kVmax:
    case Opcode::kVmax2:
    case Opcode::kVmax4:
      return Operation::kMax;
    case Opcode::kVavrg2:
    case Opcode::kVavrg4:
      return Operation::kAverage;
    case Opcode::kVset:
    case Opcode::kVset2:
    case Opcode::kVset4:
      return Operation::kSet;
    case Opcode::kVshl:
      return Operation::kShl;
    case Opcode::kVshr:
      return Operation::kShr;
    default:
      return Operation::kNone;
  }
}

unsigned LanesOf(Opcode opcode) {
  switch (opcode) {
    case Opcode::kVadd2:
    case Opcode::kVsub2:
    case Opcode::kVabsdiff2:
    case Opcode::kVmin2:
    case Opcode::kVmax2:
    case Opcode::kVavrg2:
    case Opcode::kVset2:
      return 2;
    case Opcode::kVadd4:
    case Opcode::kVsub4:
    case Opcode::kVabsdiff4:
    case Opcode::kVmin4:
    case Opcode::kVmax4:
    case Opcode::kVavrg4:
    case Opcode::kVset4:
      return 4;
    default:
      return 1;
  }
}

}  // namespace

// One result in 64 bits, not yet saturated.
V FunctionEmitter::VideoLane(const Instruction& i, V x, V y) {
  const auto abs = [&](V value) { return Intrinsic(llvm::Intrinsic::abs, {value, b.getFalse()}); };
  switch (OperationOf(i.opcode)) {
    case Operation::kAdd:
      return b.CreateAdd(x, y);
    case Operation::kSub:
      return b.CreateSub(x, y);
    case Operation::kAbsdiff:
      return abs(b.CreateSub(x, y));
    case Operation::kMin:
      return Intrinsic(llvm::Intrinsic::smin, {x, y});
    case Operation::kMax:
      return Intrinsic(llvm::Intrinsic::smax, {x, y});
    // Rounded average, away from zero on a tie upwards: (a + b + 1) >> 1.
    case Operation::kAverage:
      return b.CreateAShr(b.CreateAdd(b.CreateAdd(x, y), I64(1)), 1);
    case Operation::kSet:
      return b.CreateZExt(Comparison(i, x, y, Type::kS64), b.getInt64Ty());
    case Operation::kShl:
    case Operation::kShr: {
      V count = b.CreateAnd(y, I64(0xffffffff));
      count = i.modifiers.clamp == ptx::Clamp::kWrap
                  ? b.CreateAnd(count, I64(31))
                  : Intrinsic(llvm::Intrinsic::umin, {count, I64(32)});
      return OperationOf(i.opcode) == Operation::kShl ? b.CreateShl(x, count)
                                                      : b.CreateAShr(x, count);
    }
    case Operation::kNone:
      break;
  }
  Refuse(i);
  return x;
}

V FunctionEmitter::VideoClamp(V value, unsigned bits, bool is_signed) {
  const int64_t least = is_signed ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t most = is_signed ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  value = Intrinsic(llvm::Intrinsic::smax, {value, I64(static_cast<uint64_t>(least))});
  return Intrinsic(llvm::Intrinsic::smin, {value, I64(static_cast<uint64_t>(most))});
}

void FunctionEmitter::EmitVideo(const Instruction& i) {
  const bool is_set = OperationOf(i.opcode) == Operation::kSet;
  // vset names its two source types only; its result is unsigned.
  const Type to = is_set ? Type::kU32 : i.types[0];
  const Type from_x = is_set ? i.types[0] : i.types[1];
  const Type from_y = is_set ? i.source_type() : i.types[2];
  const unsigned lanes = LanesOf(i.opcode);
  if (lanes == 1) return EmitVideoScalar(i, to, from_x, from_y);
  const unsigned bits = 32 / lanes;
  V x = ReadBits(i.operands[1], Type::kB32);
  V y = ReadBits(i.operands[2], Type::kB32);
  const auto lane = [&](V word, unsigned k, Type type) {
    return Resize(b.CreateTrunc(b.CreateLShr(word, k * bits), Int(bits)), 64, ptx::IsSigned(type));
  };
  const bool accumulates = i.modifiers.reduction == Reduction::kAdd;
  V sum = Resize(ReadBits(i.operands[3], Type::kB32), 64, false);
  V packed = I32(0);
  for (unsigned k = 0; k < lanes; ++k) {
    V value = VideoLane(i, lane(x, k, from_x), lane(y, k, from_y));
    if (i.modifiers.sat) value = VideoClamp(value, bits, ptx::IsSigned(to));
    if (accumulates) {
      // Each lane counts as a value of the destination's type.
      sum = b.CreateAdd(sum, Resize(b.CreateTrunc(value, Int(bits)), 64, ptx::IsSigned(to)));
    } else {
      V part = b.CreateZExt(b.CreateTrunc(value, Int(bits)), b.getInt32Ty());
      packed = b.CreateOr(packed, b.CreateShl(part, k * bits));
    }
  }
  WriteBits(i.operands[0], accumulates ? b.CreateTrunc(sum, b.getInt32Ty()) : packed, Type::kB32);
}

void FunctionEmitter::EmitVideoScalar(const Instruction& i, Type to, Type from_x, Type from_y) {
  const auto source = [&](const Operand& operand, Type type) {
    V word = ReadBits(operand, Type::kB32);
    unsigned shift = 0, bits = 32;
    switch (operand.selector) {
      case Selector::kNone:
        break;
      case Selector::kB0:
      case Selector::kB1:
      case Selector::kB2:
      case Selector::kB3:
        bits = 8;
        shift =
            8 * (static_cast<unsigned>(operand.selector) - static_cast<unsigned>(Selector::kB0));
        break;
      case Selector::kH0:
      case Selector::kH1:
        bits = 16;
        shift = operand.selector == Selector::kH1 ? 16 : 0;
        break;
    }
    return Resize(b.CreateTrunc(b.CreateLShr(word, shift), Int(bits)), 64, ptx::IsSigned(type));
  };
  if (i.operands[0].selector != Selector::kNone)
    return Refuse(i, "merging into a part of the result");
  V value = VideoLane(i, source(i.operands[1], from_x), source(i.operands[2], from_y));
  if (i.modifiers.sat) value = VideoClamp(value, 32, ptx::IsSigned(to));
  V result = b.CreateTrunc(value, b.getInt32Ty());
  if (i.operands.size() > 3) {
    V c_value = ReadBits(i.operands[3], Type::kB32);
    const bool is_signed = ptx::IsSigned(to);
    switch (i.modifiers.reduction) {
      case Reduction::kAdd:
        result = b.CreateAdd(result, c_value);
        break;
      case Reduction::kMin:
        result =
            Intrinsic(is_signed ? llvm::Intrinsic::smin : llvm::Intrinsic::umin, {result, c_value});
        break;
      case Reduction::kMax:
        result =
            Intrinsic(is_signed ? llvm::Intrinsic::smax : llvm::Intrinsic::umax, {result, c_value});
        break;
      default:
        return Refuse(i);
    }
  }
  WriteBits(i.operands[0], result, Type::kB32);
}

}  // namespace smolvm::emulation::codegen
