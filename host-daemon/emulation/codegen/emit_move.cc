// mov, selection and comparison.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using llvm::CmpInst;
using ptx::Compare;
using ptx::Instruction;
using ptx::Opcode;
using ptx::Operand;
using ptx::Type;

namespace {

Type PartOf(Type type, size_t parts) {
  switch (ptx::BitsOf(type) / parts) {
    case 8:
      return Type::kB8;
    case 16:
      return Type::kB16;
    case 32:
      return Type::kB32;
    default:
      return Type::kB64;
  }
}

}  // namespace

// The bits of what a mov reads; {a, b} is one wide value, a lowest.
V FunctionEmitter::ReadMoved(const Instruction& i, const Operand& from) {
  const Type type = i.type();
  const unsigned bits = ptx::BitsOf(type);
  if (from.kind == Operand::Kind::kSymbol)
    return Resize(SymbolAddress(i, from.symbol, from.offset), bits, false);
  if (from.kind != Operand::Kind::kVector) return ReadBits(from, type);
  const auto parts = i.ElementsOf(from);
  const Type part = PartOf(type, parts.size());
  V value = llvm::ConstantInt::get(Int(bits), 0);
  for (size_t k = 0; k < parts.size(); ++k) {
    V bits_of_part = Resize(ReadBits(parts[k], part), bits, false);
    value = b.CreateOr(value, b.CreateShl(bits_of_part, k * ptx::BitsOf(part)));
  }
  return value;
}

// mov.v2, mov.v4: all are read before any is written.
void FunctionEmitter::EmitVectorMov(const Instruction& i) {
  std::vector<V> values;
  for (const Operand& from : i.ElementsOf(i.operands[1])) values.push_back(ReadMoved(i, from));
  const auto to = i.ElementsOf(i.operands[0]);
  for (size_t k = 0; k < to.size(); ++k) WriteBits(to[k], values[k], i.type());
}

void FunctionEmitter::EmitMov(const Instruction& i) {
  const Type type = i.type();
  const Operand& to = i.operands[0];
  const Operand& from = i.operands[1];
  if (type == Type::kPred) return WritePredicate(to, ReadPredicate(from));
  if (i.modifiers.vector > 1) return EmitVectorMov(i);
  if (to.kind == Operand::Kind::kVector) {
    const auto parts = i.ElementsOf(to);
    const Type part = PartOf(type, parts.size());
    const unsigned width = ptx::BitsOf(part);
    V value = ReadMoved(i, from);
    for (size_t k = 0; k < parts.size(); ++k) {
      WriteBits(parts[k], b.CreateTrunc(b.CreateLShr(value, k * width), Int(width)), part);
    }
    return;
  }
  const bool is_value = from.is_register() || from.is_immediate();
  if (is_value && CopiesAsFloat(to, type)) return Write(to, Read(from, type), type);
  WriteBits(to, ReadMoved(i, from), type);
}

void FunctionEmitter::EmitSelp(const Instruction& i) {
  const Type type = i.type();
  V condition = ReadPredicate(i.operands[3]);
  if (CopiesAsFloat(i.operands[0], type)) {
    return Write(i.operands[0],
                 b.CreateSelect(condition, Read(i.operands[1], type), Read(i.operands[2], type)),
                 type);
  }
  WriteBits(i.operands[0],
            b.CreateSelect(condition, ReadBits(i.operands[1], type), ReadBits(i.operands[2], type)),
            type);
}

// slct d, a, b, c: a when c >= 0; a NaN selects b.
void FunctionEmitter::EmitSlct(const Instruction& i) {
  const Type type = i.type();
  V condition;
  if (i.source_type() == Type::kF32) {
    V value = FlushIf(i, Read(i.operands[3], Type::kF32));
    condition = b.CreateFCmpOGE(value, llvm::ConstantFP::get(b.getFloatTy(), 0.0));
  } else {
    condition = b.CreateICmpSGE(ReadBits(i.operands[3], Type::kS32), I32(0));
  }
  WriteBits(i.operands[0],
            b.CreateSelect(condition, ReadBits(i.operands[1], type), ReadBits(i.operands[2], type)),
            type);
}

V FunctionEmitter::Comparison(const Instruction& i, V x, V y, Type type) {
  CmpInst::Predicate predicate = CmpInst::BAD_ICMP_PREDICATE;
  const bool is_float = ptx::IsFloat(type);
  const bool is_signed = ptx::IsSigned(type);
  const auto pick = [&](CmpInst::Predicate ordered, CmpInst::Predicate s, CmpInst::Predicate u) {
    predicate = is_float ? ordered : is_signed ? s : u;
  };
  switch (i.modifiers.compare) {
    case Compare::kEq:
      pick(CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ);
      break;
    // "ne" is ordered: false when one is NaN (PTX ISA 9.3.3.2).
    case Compare::kNe:
      pick(CmpInst::FCMP_ONE, CmpInst::ICMP_NE, CmpInst::ICMP_NE);
      break;
    case Compare::kLt:
      pick(CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT);
      break;
    case Compare::kLe:
      pick(CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE);
      break;
    case Compare::kGt:
      pick(CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT);
      break;
    case Compare::kGe:
      pick(CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE);
      break;
    case Compare::kLo:
      predicate = CmpInst::ICMP_ULT;
      break;
    case Compare::kLs:
      predicate = CmpInst::ICMP_ULE;
      break;
    case Compare::kHi:
      predicate = CmpInst::ICMP_UGT;
      break;
    case Compare::kHs:
      predicate = CmpInst::ICMP_UGE;
      break;
    case Compare::kEqu:
      predicate = CmpInst::FCMP_UEQ;
      break;
    case Compare::kNeu:
      predicate = CmpInst::FCMP_UNE;
      break;
    case Compare::kLtu:
      predicate = CmpInst::FCMP_ULT;
      break;
    case Compare::kLeu:
      predicate = CmpInst::FCMP_ULE;
      break;
    case Compare::kGtu:
      predicate = CmpInst::FCMP_UGT;
      break;
    case Compare::kGeu:
      predicate = CmpInst::FCMP_UGE;
      break;
    case Compare::kNum:
      predicate = CmpInst::FCMP_ORD;
      break;
    case Compare::kNan:
      predicate = CmpInst::FCMP_UNO;
      break;
    default:
      break;
  }
  if (predicate == CmpInst::BAD_ICMP_PREDICATE || CmpInst::isFPPredicate(predicate) != is_float) {
    Refuse(i);
    return b.getFalse();
  }
  return is_float ? b.CreateFCmp(predicate, x, y) : b.CreateICmp(predicate, x, y);
}

V FunctionEmitter::Compared(const Instruction& i, const Operand& x, const Operand& y, Type type) {
  if (type == Type::kF16 || type == Type::kBf16) {
    return Comparison(i, FloatOperand(i, x, type), FloatOperand(i, y, type), Type::kF32);
  }
  if (type == Type::kF32 || type == Type::kF64) {
    V p = Read(x, type);
    V q = Read(y, type);
    return Comparison(i, FlushIf(i, p), FlushIf(i, q), type);
  }
  return Comparison(i, ReadBits(x, type), ReadBits(y, type), type);
}

V FunctionEmitter::CombineBool(const Instruction& i, V value, const Operand& with) {
  V other = ReadPredicate(with);
  switch (i.modifiers.boolean) {
    case ptx::Bool::kAnd:
      return b.CreateAnd(value, other);
    case ptx::Bool::kOr:
      return b.CreateOr(value, other);
    case ptx::Bool::kXor:
      return b.CreateXor(value, other);
    default:
      return value;
  }
}

void FunctionEmitter::EmitSetp(const Instruction& i) {
  const Type type = i.type();
  const bool combines = i.modifiers.boolean != ptx::Bool::kNone && i.operands.size() == 4;
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    // p from the low halves, q from the high ones.
    V x = ReadBits(i.operands[1], type);
    V y = ReadBits(i.operands[2], type);
    V results[2];
    for (unsigned k = 0; k < 2; ++k) {
      const auto part = [&](V bits) {
        return HalfToFloat(b.CreateTrunc(b.CreateLShr(bits, 16 * k), b.getInt16Ty()),
                           type == Type::kBf16x2);
      };
      results[k] = Comparison(i, part(x), part(y), Type::kF32);
      if (combines) results[k] = CombineBool(i, results[k], i.operands[3]);
    }
    WritePredicate(i.operands[0], results[0]);
    return WritePredicate(i.second_destination, results[1]);
  }
  V result = Compared(i, i.operands[1], i.operands[2], type);
  V inverse = b.CreateNot(result);
  if (combines) {
    V other = result;
    result = CombineBool(i, other, i.operands[3]);
    inverse = CombineBool(i, inverse, i.operands[3]);
  }
  WritePredicate(i.operands[0], result);
  WritePredicate(i.second_destination, inverse);
}

void FunctionEmitter::EmitSet(const Instruction& i) {
  const Type to = i.type();
  const Type from = i.source_type();
  const auto shape = [&](V result) -> V {
    if (i.modifiers.boolean != ptx::Bool::kNone && i.operands.size() == 4) {
      result = CombineBool(i, result, i.operands[3]);
    }
    return result;
  };
  if (from == Type::kF16x2 || from == Type::kBf16x2) {
    const bool is_bf16 = from == Type::kBf16x2;
    V x = ReadBits(i.operands[1], from);
    V y = ReadBits(i.operands[2], from);
    V value = I32(0);
    const uint32_t one = ptx::IsFloat(to) ? (is_bf16 ? 0x3f80 : 0x3c00) : 0xffff;
    for (unsigned k = 0; k < 2; ++k) {
      const auto part = [&](V bits) {
        return HalfToFloat(b.CreateTrunc(b.CreateLShr(bits, 16 * k), b.getInt16Ty()), is_bf16);
      };
      V result = shape(Comparison(i, part(x), part(y), Type::kF32));
      value = b.CreateOr(value, b.CreateSelect(result, I32(one << (16 * k)), I32(0)));
    }
    return WriteBits(i.operands[0], value, Type::kB32);
  }
  V result = shape(Compared(i, i.operands[1], i.operands[2], from));
  if (to == Type::kF32) {
    V one = llvm::ConstantFP::get(b.getFloatTy(), 1.0);
    return Write(i.operands[0],
                 b.CreateSelect(result, one, llvm::ConstantFP::get(b.getFloatTy(), 0.0)), to);
  }
  if (to == Type::kF16 || to == Type::kBf16) {
    V one = b.getInt16(to == Type::kF16 ? 0x3c00 : 0x3f80);
    return WriteBits(i.operands[0], b.CreateSelect(result, one, b.getInt16(0)), to);
  }
  WriteBits(i.operands[0], b.CreateSExt(result, Int(ptx::BitsOf(to))), to);
}

}  // namespace smolvm::emulation::codegen
