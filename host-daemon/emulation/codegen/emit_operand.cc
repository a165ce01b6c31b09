// Operands: registers, immediates, special registers.
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Opcode;
using ptx::Special;

llvm::Type* FunctionEmitter::TypeFor(Type type) {
  switch (type) {
    case Type::kPred:
      return b.getInt1Ty();
    case Type::kF32:
      return b.getFloatTy();
    case Type::kF64:
      return b.getDoubleTy();
    default:
      return Int(std::max(8u, ptx::BitsOf(type)));  // halves and packed values too: by their bits
  }
}

V FunctionEmitter::ToBits(V value) {
  llvm::Type* type = value->getType();
  return type->isIntOrIntVectorTy() ? value
                                    : b.CreateBitCast(value, Int(type->getScalarSizeInBits()));
}

V FunctionEmitter::FromBits(V bits, Type type) {
  llvm::Type* to = TypeFor(type);
  return to->isIntegerTy() ? bits : b.CreateBitCast(bits, to);
}

V FunctionEmitter::Resize(V value, unsigned bits, bool is_signed) {
  return is_signed ? b.CreateSExtOrTrunc(value, Int(bits)) : b.CreateZExtOrTrunc(value, Int(bits));
}

// NaN results of .f32 instructions are canonical (PTX ISA 9.7.3: 0x7fffffff), and x86 gives other
// ones. Which NaN it is shows only where bits are looked at, so arithmetic leaves its NaN as it
// comes, and reads of bits put it right. A register that gets both arithmetic results and raw bits
// (loads, integer results, literals) is put right at once instead, because raw bits must stay as
// they are.
void FunctionEmitter::NoteFloatDefinitions() {
  float_use_.assign(f.registers.size(), 0);
  const auto is_arithmetic = [](const Instruction& i) {
    switch (i.opcode) {
      case Opcode::kAdd:
      case Opcode::kSub:
      case Opcode::kMul:
      case Opcode::kMad:
      case Opcode::kFma:
      case Opcode::kDiv:
      case Opcode::kMin:
      case Opcode::kMax:
      case Opcode::kRcp:
      case Opcode::kSqrt:
      case Opcode::kRsqrt:
      case Opcode::kSin:
      case Opcode::kCos:
      case Opcode::kLg2:
      case Opcode::kEx2:
      case Opcode::kTanh:
      case Opcode::kCvt:
        return i.type() == Type::kF32;
      default:
        return false;
    }
  };
  const auto is_copy = [](const Instruction& i) {
    return (i.opcode == Opcode::kMov || i.opcode == Opcode::kSelp || i.opcode == Opcode::kAbs ||
            i.opcode == Opcode::kNeg) &&
           i.type() == Type::kF32;
  };
  const auto is_nan_literal = [](const Operand& o) {
    return o.is_immediate() && std::isnan(std::bit_cast<float>(static_cast<uint32_t>(o.bits)));
  };
  std::vector<const Instruction*> copies;
  for (const Instruction& i : f.body) {
    const size_t written = ptx::InfoOf(i.opcode).destinations;
    if (is_copy(i) && i.operands[0].is_register()) {
      copies.push_back(&i);
      const bool raw = std::any_of(i.operands.begin() + 1, i.operands.end(), is_nan_literal);
      if (raw) float_use_[i.operands[0].index] |= kRaw;
      continue;
    }
    for (size_t k = 0; k < written && k < i.operands.size(); ++k) {
      if (i.operands[k].is_register())
        float_use_[i.operands[k].index] |= is_arithmetic(i) ? kArithmetic : kRaw;
      if (i.operands[k].kind != Operand::Kind::kVector) continue;
      for (const Operand& element : i.ElementsOf(i.operands[k])) {
        if (element.is_register()) float_use_[element.index] |= kRaw;
      }
    }
  }
  for (const ptx::Call& call : f.calls) {
    for (const Operand& result : call.returns) {
      if (result.is_register()) float_use_[result.index] |= kRaw;
    }
  }
  for (const ptx::Variable& param : f.params) {
    if (param.reg != ptx::kNoIndex) float_use_[param.reg] |= kRaw;
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (const Instruction* copy : copies) {
      uint8_t& use = float_use_[copy->operands[0].index];
      const uint8_t before = use;
      for (size_t k = 1; k < copy->operands.size(); ++k) {
        const Operand& source = copy->operands[k];
        if (source.is_register() && f.registers[source.index].type != Type::kPred)
          use |= float_use_[source.index];
      }
      changed = changed || use != before;
    }
  }
}

// Into a register that also gets raw bits a copy is one of bits: those that it copies may be raw.
bool FunctionEmitter::CopiesAsFloat(const Operand& to, Type type) const {
  if (type == Type::kF64) return true;
  const bool mixed = to.is_register() && float_use_[to.index] == (kArithmetic | kRaw);
  return type == Type::kF32 && !mixed;
}

V FunctionEmitter::Canonical(V value) {
  V nan = llvm::ConstantFP::get(
      c, llvm::APFloat(llvm::APFloat::IEEEsingle(), llvm::APInt(32, 0x7fffffff)));
  return b.CreateSelect(IsNaN(value), nan, value);
}

llvm::Type* FunctionEmitter::RegisterType(uint32_t reg) {
  const Type type = f.registers[reg].type;
  return plan_ != nullptr && plan_->varies[reg] ? LaneVector(TypeFor(type)) : TypeFor(type);
}

// A register, or the carry flag.
V FunctionEmitter::LoadSlot(V slot) {
  V value = b.raw().CreateLoad(llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType(), slot);
  return lane_ == nullptr ? value : Lane(value, lane_);
}

void FunctionEmitter::StoreSlot(V slot, V value, bool is_temporary) {
  llvm::Type* type = llvm::cast<llvm::AllocaInst>(slot)->getAllocatedType();
  if (plan_ == nullptr) {
    b.raw().CreateStore(value, slot);
    return;
  }
  V old = b.raw().CreateLoad(type, slot);
  if (type->isVectorTy() && lane_ != nullptr) {
    b.raw().CreateStore(WithLane(old, value, lane_), slot);
    return;
  }
  value = b.Widened(value, old);
  if (!is_full_ && guard_ != nullptr) value = b.CreateSelect(guard_, value, old);
  if (!is_full_ && divergent_ && !is_temporary) value = b.CreateSelect(block_mask_, value, old);
  if (value->getType() != type) {
    error_ = "internal: a register that varies between lanes";
    return;
  }
  b.raw().CreateStore(value, slot);
}

void FunctionEmitter::StoreRegister(uint32_t reg, V value) {
  StoreSlot(registers_[reg], value, plan_ != nullptr && plan_->is_temporary[reg]);
}

V FunctionEmitter::ReadRegisterBits(uint32_t reg, unsigned bits) {
  V value = LoadRegister(reg);
  const bool needs_canonical =
      float_use_[reg] == kArithmetic && ptx::BitsOf(f.registers[reg].type) == 32;
  if (needs_canonical) {
    value = Canonical(
        value->getType()->isFPOrFPVectorTy() ? value : b.CreateBitCast(value, b.getFloatTy()));
  }
  return Resize(ToBits(value), bits, ptx::IsSigned(f.registers[reg].type));
}

V FunctionEmitter::ReadBits(const Operand& operand, Type type) {
  const unsigned bits = type == Type::kPred ? 1 : std::max(8u, ptx::BitsOf(type));
  switch (operand.kind) {
    case Operand::Kind::kRegister:
      if (type == Type::kPred) return ReadPredicate(operand);
      return ReadRegisterBits(operand.index, bits);
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64:
      return llvm::ConstantInt::get(
          Int(bits), llvm::APInt(64, ptx::ImmediateBits(operand, type)).zextOrTrunc(bits));
    case Operand::Kind::kSpecial:
      return Resize(ReadSpecial(operand), bits, false);
    default:
      error_ = "unsupported operand of an instruction";
      return llvm::Constant::getNullValue(Int(bits));
  }
}

V FunctionEmitter::Read(const Operand& operand, Type type) {
  const bool same = operand.is_register() && f.registers[operand.index].type == type &&
                    (type == Type::kF32 || type == Type::kF64);
  if (same) return LoadRegister(operand.index);
  if (operand.is_register() && type == Type::kF32 &&
      ptx::BitsOf(f.registers[operand.index].type) == 32) {
    return b.CreateBitCast(LoadRegister(operand.index), b.getFloatTy());
  }
  return FromBits(ReadBits(operand, type), type);
}

void FunctionEmitter::WriteBits(const Operand& operand, V bits, Type type) {
  if (!operand.is_register()) return;  // a sink
  const Type to = f.registers[operand.index].type;
  V value = Resize(bits, TypeFor(to)->getScalarSizeInBits(), ptx::IsSigned(type));
  StoreRegister(operand.index, FromBits(value, to));
}

void FunctionEmitter::Write(const Operand& operand, V value, Type type) {
  if (!operand.is_register()) return;
  if (type == Type::kPred) return WritePredicate(operand, value);
  if (type == Type::kF32 && float_use_[operand.index] == (kArithmetic | kRaw))
    value = Canonical(value);
  if (TypeFor(f.registers[operand.index].type) == value->getType()->getScalarType()) {
    StoreRegister(operand.index, value);
  } else {
    WriteBits(operand, ToBits(value), type);
  }
}

V FunctionEmitter::ReadPredicate(const Operand& operand) {
  if (operand.is_immediate()) return b.getInt1(operand.bits != 0);
  if (operand.kind == Operand::Kind::kSpecial) return b.getFalse();  // %is_explicit_cluster
  V value = LoadRegister(operand.index);
  return operand.negated ? b.CreateNot(value) : value;
}

void FunctionEmitter::WritePredicate(const Operand& operand, V value) {
  if (operand.is_register()) StoreRegister(operand.index, value);
}

V FunctionEmitter::ThreadIndex(unsigned component) {
  if (component > 2) return I32(0);
  V index = is_kernel && !m.facts().is_coroutine
                ? fn->getArg(1 + component)
                : LoadContext(b, ctx, offsetof(ThreadContext, tid) + 4 * component, b.getInt32Ty(),
                              m.facts().needs_fibres);
  if (plan_ == nullptr || component != 0) return index;
  return b.CreateAdd(index, lane_ != nullptr ? lane_ : Counting(32, 1));
}

V FunctionEmitter::LinearThread() {
  const auto size = [&](unsigned k) {
    return LoadContext(b, block_ctx, offsetof(BlockContext, ntid) + 4 * k, b.getInt32Ty(), true);
  };
  V rows = b.CreateAdd(ThreadIndex(1), b.CreateMul(size(1), ThreadIndex(2)));
  return b.CreateAdd(ThreadIndex(0), b.CreateMul(size(0), rows));
}

V FunctionEmitter::LaneId() {
  if (m.facts().needs_fibres && plan_ == nullptr)
    return LoadContext(b, ctx, offsetof(ThreadContext, lane), b.getInt32Ty(), true);
  return b.CreateAnd(LinearThread(), I32(31));
}

V FunctionEmitter::ReadSpecial(const Operand& operand) {
  const unsigned k = operand.component;
  const auto field = [&](size_t offset, llvm::Type* type) {
    return LoadContext(b, block_ctx, offset, type, true);
  };
  const auto vector = [&](size_t offset, uint32_t missing) -> V {
    return k > 2 ? I32(missing) : field(offset + 4 * k, b.getInt32Ty());
  };
  const auto lane_bit = [&] { return b.CreateShl(I32(1), LaneId()); };
  switch (operand.special()) {
    case Special::kTid:
      return ThreadIndex(k);
    case Special::kNtid:
      return vector(offsetof(BlockContext, ntid), 0);
    case Special::kCtaid:
    case Special::kClusterid:
      return vector(offsetof(BlockContext, ctaid), 0);
    case Special::kNctaid:
    case Special::kNclusterid:
      return vector(offsetof(BlockContext, nctaid), 0);
    // Without clusters a block is a cluster of its own.
    case Special::kClusterCtaid:
    case Special::kClusterCtarank:
      return I32(0);
    case Special::kClusterNctaid:
      return I32(k > 2 ? 0 : 1);
    case Special::kClusterNctarank:
      return I32(1);
    case Special::kIsExplicitCluster:
      return I32(0);
    case Special::kLaneid:
      return LaneId();
    case Special::kWarpid:
      if (m.facts().needs_fibres && plan_ == nullptr)
        return LoadContext(b, ctx, offsetof(ThreadContext, warp), b.getInt32Ty(), true);
      return b.CreateLShr(LinearThread(), 5);
    case Special::kNwarpid:
      return I32(64);
    case Special::kSmid:
      return I32(0);
    case Special::kNsmid:
      return I32(1);
    case Special::kGridid:
      return field(offsetof(BlockContext, grid_id), b.getInt64Ty());
    case Special::kLanemaskEq:
      return lane_bit();
    case Special::kLanemaskLt:
      return b.CreateSub(lane_bit(), I32(1));
    case Special::kLanemaskLe:
      return b.CreateOr(lane_bit(), b.CreateSub(lane_bit(), I32(1)));
    case Special::kLanemaskGe:
      return b.CreateNot(b.CreateSub(lane_bit(), I32(1)));
    case Special::kLanemaskGt:
      return b.CreateShl(I32(~1u), LaneId());
    case Special::kClock:
    case Special::kClock64:
      return Intrinsic(llvm::Intrinsic::readcyclecounter, {});
    case Special::kClockHi:
      return b.CreateLShr(Intrinsic(llvm::Intrinsic::readcyclecounter, {}), 32);
    case Special::kGlobaltimer:
    case Special::kGlobaltimerLo:
      return CallHelper(Helper::kGlobalTimer, {});
    case Special::kGlobaltimerHi:
      return b.CreateLShr(CallHelper(Helper::kGlobalTimer, {}), 32);
    // The grid's workspace, which cooperative groups find through these two.
    case Special::kEnvreg: {
      V workspace = field(offsetof(BlockContext, grid_workspace), b.getInt64Ty());
      if (k == 1) return b.CreateLShr(workspace, 32);
      if (k == 2) return b.CreateTrunc(workspace, b.getInt32Ty());
      return I32(0);
    }
    case Special::kTotalSmemSize:
    case Special::kAggrSmemSize:
      return field(offsetof(BlockContext, shared_bytes), b.getInt32Ty());
    case Special::kDynamicSmemSize:
      return field(offsetof(BlockContext, dynamic_shared_bytes), b.getInt32Ty());
    default:
      if (error_.empty()) {
        error_ = "unsupported PTX special register `" +
                 std::string(ptx::NameOf(operand.special())) + "`";
      }
      return I64(0);
  }
}

}  // namespace smolvm::emulation::codegen
