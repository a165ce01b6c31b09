// atom and red, in every width and operation.
//
// LLVM's own atomic instructions where they do the same thing; compare-and-swap loops for the rest.
// Shared memory belongs to one OS thread, but the same code serves it: an uncontended lock prefix
// is cheap next to a fibre switch.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Order;
using ptx::Reduction;
using ptx::StateSpace;

namespace {

llvm::AtomicOrdering OrderingOf(Order order) {
  switch (order) {
    case Order::kAcquire:
      return llvm::AtomicOrdering::Acquire;
    case Order::kRelease:
      return llvm::AtomicOrdering::Release;
    case Order::kAcqRel:
      return llvm::AtomicOrdering::AcquireRelease;
    default:
      return llvm::AtomicOrdering::Monotonic;
  }
}

bool IsFloatType(ptx::Type type) { return ptx::IsFloat(type); }

}  // namespace

V FunctionEmitter::CasLoop(Checked at, unsigned bits, const std::function<V(V)>& next) {
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = NewBlock("cas");
  llvm::BasicBlock* done = NewBlock("cas_done");
  llvm::LoadInst* first = LoadFrom(at, Int(bits), bits / 8);
  first->setAtomic(llvm::AtomicOrdering::Monotonic);
  b.CreateBr(loop);
  b.SetInsertPoint(loop);
  llvm::PHINode* old_value = b.CreatePHI(Int(bits), 2);
  old_value->addIncoming(first, before);
  V wanted = next(old_value);
  V result = b.raw().CreateAtomicCmpXchg(at.pointer(), old_value, wanted, llvm::Align(bits / 8),
                                         llvm::AtomicOrdering::SequentiallyConsistent,
                                         llvm::AtomicOrdering::Monotonic);
  old_value->addIncoming(b.CreateExtractValue(result, 0), b.GetInsertBlock());
  b.CreateCondBr(b.CreateExtractValue(result, 1), done, loop);
  b.SetInsertPoint(done);
  return old_value;
}

// One step of a floating-point reduction, on bits.
V FunctionEmitter::AtomicFloat(const Instruction& i, V old_bits, Type type, V operand_bits) {
  const Reduction op = i.modifiers.reduction;
  if (IsHalf(type)) {
    const bool is_bf16 = IsBf16(type);
    V x = HalfToFloat(old_bits, is_bf16);
    V y = HalfToFloat(operand_bits, is_bf16);
    V result =
        op == Reduction::kAdd ? b.CreateFAdd(x, y) : MinMax(x, y, op == Reduction::kMax, false);
    return FloatToHalf(result, is_bf16);
  }
  V x = FromBits(old_bits, type);
  V y = FromBits(operand_bits, type);
  // PTX ISA 9.7.13.5, atom: .f32 add on global memory flushes subnormals, on shared memory keeps
  // them.
  const bool flush = type == Type::kF32 && i.modifiers.space == StateSpace::kGlobal;
  if (flush) {
    x = Flush(x);
    y = Flush(y);
  }
  V sum = b.CreateFAdd(x, y);
  if (flush) sum = Flush(sum);
  if (type == Type::kF32) sum = Canonical(sum);
  return ToBits(sum);
}

V FunctionEmitter::AtomicPacked(const Instruction& i, V old_bits, Type type, V operand_bits) {
  const Type half = type == Type::kBf16x2 ? Type::kBf16 : Type::kF16;
  V result = I32(0);
  for (unsigned k = 0; k < 2; ++k) {
    const auto part = [&](V bits) {
      return b.CreateTrunc(b.CreateLShr(bits, 16 * k), b.getInt16Ty());
    };
    V value = AtomicFloat(i, part(old_bits), half, part(operand_bits));
    result = b.CreateOr(result, b.CreateShl(b.CreateZExt(value, b.getInt32Ty()), 16 * k));
  }
  return result;
}

V FunctionEmitter::Atomic(const Instruction& i, Checked at, Type type, V operand, V compare) {
  using RMW = llvm::AtomicRMWInst;
  const unsigned bits = ptx::BitsOf(type);
  const llvm::Align align(bits / 8);
  const Reduction op = i.modifiers.reduction;
  const llvm::AtomicOrdering ordering = OrderingOf(i.modifiers.order);
  const auto rmw = [&](RMW::BinOp kind) -> V {
    return b.raw().CreateAtomicRMW(kind, at.pointer(), operand, align, ordering);
  };
  if (op == Reduction::kCas) {
    V result = b.raw().CreateAtomicCmpXchg(at.pointer(), compare, operand, align,
                                           llvm::AtomicOrdering::SequentiallyConsistent,
                                           llvm::AtomicOrdering::SequentiallyConsistent);
    return b.CreateExtractValue(result, 0);
  }
  if (op == Reduction::kExch) {
    if (bits == 128) return CasLoop(at, bits, [&](V) { return operand; });
    return rmw(RMW::Xchg);
  }
  if (IsFloatType(type)) {
    if (type == Type::kF16x2 || type == Type::kBf16x2) {
      return CasLoop(at, bits,
                     [&](V old_bits) { return AtomicPacked(i, old_bits, type, operand); });
    }
    if (op != Reduction::kAdd && !IsHalf(type)) {
      Refuse(i);
      return operand;
    }
    return CasLoop(at, bits, [&](V old_bits) { return AtomicFloat(i, old_bits, type, operand); });
  }
  switch (op) {
    case Reduction::kAdd:
      return rmw(RMW::Add);
    case Reduction::kAnd:
      return rmw(RMW::And);
    case Reduction::kOr:
      return rmw(RMW::Or);
    case Reduction::kXor:
      return rmw(RMW::Xor);
    case Reduction::kMin:
      return rmw(ptx::IsSigned(type) ? RMW::Min : RMW::UMin);
    case Reduction::kMax:
      return rmw(ptx::IsSigned(type) ? RMW::Max : RMW::UMax);
    case Reduction::kInc:  // d = old >= b ? 0 : old + 1
      return CasLoop(at, bits, [&](V old_value) {
        V zero = llvm::ConstantInt::get(Int(bits), 0);
        return b.CreateSelect(b.CreateICmpUGE(old_value, operand), zero,
                              b.CreateAdd(old_value, llvm::ConstantInt::get(Int(bits), 1)));
      });
    case Reduction::kDec:  // d = old == 0 or old > b ? b : old - 1
      return CasLoop(at, bits, [&](V old_value) {
        V zero = llvm::ConstantInt::get(Int(bits), 0);
        V wrap = b.CreateOr(b.CreateICmpEQ(old_value, zero), b.CreateICmpUGT(old_value, operand));
        return b.CreateSelect(wrap, operand,
                              b.CreateSub(old_value, llvm::ConstantInt::get(Int(bits), 1)));
      });
    default:
      Refuse(i);
      return operand;
  }
}

void FunctionEmitter::EmitAtom(const Instruction& i) {
  const bool returns = i.opcode == Opcode::kAtom;
  const size_t first = returns ? 1 : 0;
  const Type type = i.type();
  const unsigned bytes = static_cast<unsigned>(ptx::BytesOf(type));
  const unsigned count = i.modifiers.vector;
  if (bytes < 2 || bytes > 16) return Refuse(i);
  const Operand& value = i.operands[first + 1];
  const Checked at = Pointer(i, i.operands[first], {i.modifiers.space, bytes * count, Use::kWrite});
  if (count > 1) {
    // Vectors are atomic member by member (PTX ISA, atom).
    if (value.kind != Operand::Kind::kVector) return Refuse(i);
    const auto sources = i.ElementsOf(value);
    for (size_t k = 0; k < sources.size(); ++k) {
      V result = Atomic(i, At(at, k * bytes), type, ReadBits(sources[k], type), nullptr);
      if (returns && i.operands[0].kind == Operand::Kind::kVector) {
        WriteBits(i.ElementsOf(i.operands[0])[k], result, type);
      }
    }
    return;
  }
  if (value.kind == Operand::Kind::kVector) return Refuse(i);
  V operand = ReadBits(value, type);
  V compare = nullptr;
  if (i.modifiers.reduction == Reduction::kCas) {
    if (i.operands.size() < first + 3) return Refuse(i);
    compare = operand;
    operand = ReadBits(i.operands[first + 2], type);
  }
  V result = Atomic(i, at, type, operand, compare);
  if (returns) WriteBits(i.operands[0], result, type);
}

// mbarrier objects (PTX ISA 9.7.13.15): 64 bits, ours to lay out. Bits 0-19: arrivals that are
// still pending in this phase; 20-39: expected arrivals; 40-61: transaction count, biased; 62:
// unused; 63: phase.
//
// What programs see of it: the phase parity, and the state token that arrive returns.
namespace {
constexpr unsigned kCountBits = 20;
constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;
}  // namespace

Checked FunctionEmitter::MbarrierAt(const Instruction& i, const Operand& address, Use use) {
  const bool is_generic = i.modifiers.space == StateSpace::kNone;
  return Pointer(i, address, {is_generic ? StateSpace::kNone : StateSpace::kShared, 8, use});
}

void FunctionEmitter::EmitMbarrierInit(const Instruction& i) {
  const Checked at = MbarrierAt(i, i.operands[0], Use::kWrite);
  if (i.opcode == Opcode::kMbarrierInval) {
    StoreBits(at, I64(0), Order::kRelaxed, false);
    return;
  }
  V count =
      b.CreateAnd(b.CreateZExt(Read(i.operands[1], Type::kU32), b.getInt64Ty()), I64(kCountMask));
  StoreBits(at, b.CreateOr(count, b.CreateShl(count, kCountBits)), Order::kRelaxed, false);
}

// The copies before it are done: with .noinc it is an arrival. Otherwise it makes one more pending,
// and arrives, which is nothing.
void FunctionEmitter::EmitCpAsyncArrive(const Instruction& i) {
  if (i.text.find(".noinc") != std::string_view::npos) return EmitMbarrierArrive(i);
  MbarrierAt(i, i.operands[0], Use::kWrite);
}

void FunctionEmitter::EmitMbarrierArrive(const Instruction& i) {
  if (i.text.find("expect_tx") != std::string_view::npos ||
      i.text.find("noComplete") != std::string_view::npos) {
    return Refuse(i);
  }
  // "mbarrier.arrive.b64 state, [addr], count": the state may be left out.
  size_t address = 0;
  while (address < i.operands.size() && i.operands[address].kind != Operand::Kind::kAddress)
    ++address;
  if (address == i.operands.size()) return Refuse(i);
  V count = address + 1 < i.operands.size()
                ? b.CreateZExt(Read(i.operands[address + 1], Type::kU32), b.getInt64Ty())
                : static_cast<V>(I64(1));
  const Checked at = MbarrierAt(i, i.operands[address], Use::kWrite);
  const bool drop = i.opcode == Opcode::kMbarrierArriveDrop;
  V old_state = CasLoop(at, 64, [&](V state) -> V {
    V pending =
        b.CreateSub(b.CreateAnd(state, I64(kCountMask)), b.CreateAnd(count, I64(kCountMask)));
    pending = b.CreateAnd(pending, I64(kCountMask));
    V expected = b.CreateAnd(b.CreateLShr(state, kCountBits), I64(kCountMask));
    if (drop) expected = b.CreateAnd(b.CreateSub(expected, count), I64(kCountMask));
    V complete = b.CreateICmpEQ(pending, I64(0));
    V phase = b.CreateAnd(state, I64(uint64_t{1} << 63));
    V next_phase = b.CreateSelect(complete, b.CreateXor(phase, I64(uint64_t{1} << 63)), phase);
    V next_pending = b.CreateSelect(complete, expected, pending);
    return b.CreateOr(next_phase, b.CreateOr(b.CreateShl(expected, kCountBits), next_pending));
  });
  if (address > 0) WriteBits(i.operands[0], old_state, Type::kB64);
}

// test_wait and try_wait: whether the phase that the token (or parity) names has completed. A loop
// around it yields.
void FunctionEmitter::EmitMbarrierTest(const Instruction& i) {
  const bool by_parity = i.text.find(".parity") != std::string_view::npos;
  V state = LoadBits(MbarrierAt(i, i.operands[1], Use::kRead), 64, Order::kAcquire, false);
  V now = b.CreateLShr(state, 63);
  V waited =
      by_parity ? b.CreateAnd(b.CreateZExt(Read(i.operands[2], Type::kU32), b.getInt64Ty()), I64(1))
                : b.CreateLShr(ReadBits(i.operands[2], Type::kB64), 63);
  WritePredicate(i.operands[0], b.CreateICmpNE(now, waited));
}

void FunctionEmitter::EmitMbarrierPending(const Instruction& i) {
  V state = ReadBits(i.operands[1], Type::kB64);
  WriteBits(i.operands[0], b.CreateTrunc(b.CreateAnd(state, I64(kCountMask)), b.getInt32Ty()),
            Type::kU32);
}

}  // namespace smolvm::emulation::codegen
