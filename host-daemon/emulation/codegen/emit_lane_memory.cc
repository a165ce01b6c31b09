// Loads and stores of several lanes: together where their addresses allow it.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <bit>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::StateSpace;

// Whether `count` accesses of access.bytes each, from `address` on, stay inside the space's memory
// and are aligned; for each lane when addresses are.
V FunctionEmitter::IsInside(V address, unsigned count, Access access) {
  const auto [offset, bytes] = BoundsOf(address, access.space);
  V starts = Intrinsic(llvm::Intrinsic::usub_sat, {bytes, I64((count - 1) * access.bytes)});
  return b.CreateNot(
      Outside(offset, starts, static_cast<unsigned>(std::countr_zero(access.bytes))));
}

// The common case is one wide access: all lanes active, each at its left neighbour's end. Then
// come the processor's own gathers and scatters (null where there are none for the type; only
// AVX-512's, others cost LLVM seconds), and all else goes lane by lane, as do bad addresses, which
// that finds and reports.
void FunctionEmitter::EmitAccess(const Instruction& i, const Operand& operand, Access access,
                                 const std::function<void(V pointer)>& together,
                                 const std::function<void(V pointers, V mask)>& scattered) {
  V address = operand.base == Operand::AddressBase::kSymbol
                  ? SymbolAddress(i, operand.symbol, operand.offset)
                  : AddressValue(operand);
  if (!LaneBuilder::IsLanes(address)) {
    // All to one place: one load serves them, and of several stores one is the last.
    const auto once = [&] {
      if (access.writes) lane_ = NoteFirstActive();
      (this->*HandlerOf(i.opcode))(i);
      lane_ = nullptr;
    };
    return guard_ == nullptr ? once() : UnderAny(ActiveLanes(), once);
  }
  V mask = ActiveLanes();
  V first = b.CreateExtractElement(address, uint64_t{0});
  V neighbours = b.CreateICmpEQ(address, b.CreateAdd(first, Counting(64, access.bytes)));
  V wide = b.CreateAnd(All(Among(mask, neighbours)), IsInside(first, lanes(), access));
  llvm::BasicBlock* fast = NewBlock("together");
  llvm::BasicBlock* slow = NewBlock("each");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateCondBr(wide, fast, slow, llvm::MDBuilder(c).createBranchWeights(1 << 10, 1));
  b.SetInsertPoint(fast);
  is_full_ = true;
  together(b.CreateIntToPtr(GenericOf(first, access.space), m.ptr()));
  is_full_ = false;
  b.CreateBr(after);
  b.SetInsertPoint(slow);
  if (m.has_avx512() && scattered != nullptr) {
    llvm::BasicBlock* spread = NewBlock("scattered");
    slow = NewBlock("each");
    V outside = b.CreateNot(b.Widened(IsInside(address, 1, access), mask));
    b.CreateCondBr(Any(Among(mask, outside)), slow, spread);
    b.SetInsertPoint(spread);
    scattered(b.CreateIntToPtr(GenericOf(address, access.space),
                               llvm::FixedVectorType::get(m.ptr(), lanes())),
              mask);
    b.CreateBr(after);
    b.SetInsertPoint(slow);
  }
  EmitEach(i);
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

void FunctionEmitter::EmitLoadForLanes(const Instruction& i) {
  const Type type = i.type();
  const unsigned size = static_cast<unsigned>(ptx::BytesOf(type));
  const unsigned count = i.modifiers.vector;
  const Operand& operand = i.operands[1];
  const bool is_param =
      i.modifiers.space == StateSpace::kParam && operand.base == Operand::AddressBase::kSymbol;
  if (is_param || type == Type::kPred || size * count > 32) return EmitLd(i);
  const auto together = [&](V pointer) {
    V all = b.CreateAlignedLoad(llvm::FixedVectorType::get(Int(size * 8), lanes() * count), pointer,
                                llvm::Align(size * count));
    const Operand& to = i.operands[0];
    if (to.kind != Operand::Kind::kVector) return WriteBits(to, all, type);
    for (unsigned k = 0; k < count; ++k) {
      std::vector<int> picked;
      for (unsigned lane = 0; lane < lanes(); ++lane)
        picked.push_back(static_cast<int>(lane * count + k));
      WriteBits(i.ElementsOf(to)[k], b.CreateShuffleVector(all, picked), type);
    }
  };
  const auto scattered = [&](V pointers, V mask) {
    llvm::Type* element = LaneVector(Int(size * 8));
    WriteBits(i.operands[0],
              b.CreateMaskedGather(element, pointers, llvm::Align(size), mask,
                                   llvm::Constant::getNullValue(element)),
              type);
  };
  const Access access{i.modifiers.space, size * count};
  if (count == 1 && (size == 4 || size == 8))
    return EmitAccess(i, operand, access, together, scattered);
  EmitAccess(i, operand, access, together, nullptr);
}

void FunctionEmitter::EmitStoreForLanes(const Instruction& i) {
  const Type type = i.type();
  const unsigned size = static_cast<unsigned>(ptx::BytesOf(type));
  const unsigned count = i.modifiers.vector;
  if (i.modifiers.space == StateSpace::kParam || type == Type::kPred || size * count > 32)
    return EmitSt(i);
  const Operand& from = i.operands[1];
  const auto value = [&](const Operand& operand) {
    return b.Widened(Resize(ReadBits(operand, type), size * 8, false), block_mask_);
  };
  const auto together = [&](V pointer) {
    if (from.kind != Operand::Kind::kVector) {
      b.CreateAlignedStore(value(from), pointer, llvm::Align(size));
      return;
    }
    // {a0 a1 …} {b0 b1 …} to a0 b0 a1 b1 …: element by element into one vector.
    V all = llvm::PoisonValue::get(llvm::FixedVectorType::get(Int(size * 8), lanes() * count));
    for (unsigned k = 0; k < count; ++k) {
      std::vector<int> spread(lanes() * count, -1), merged;
      for (unsigned lane = 0; lane < lanes(); ++lane)
        spread[lane * count + k] = static_cast<int>(lane);
      V part = b.CreateShuffleVector(value(i.ElementsOf(from)[k]), spread);
      for (unsigned j = 0; j < lanes() * count; ++j)
        merged.push_back(static_cast<int>(j % count == k ? lanes() * count + j : j));
      all = k == 0 ? part : b.CreateShuffleVector(all, part, merged);
    }
    b.CreateAlignedStore(all, pointer, llvm::Align(size * count));
  };
  const auto scattered = [&](V pointers, V mask) {
    b.CreateMaskedScatter(value(from), pointers, llvm::Align(size), mask);
  };
  const Access access{i.modifiers.space, size * count, true};
  if (count == 1 && (size == 4 || size == 8))
    return EmitAccess(i, i.operands[0], access, together, scattered);
  EmitAccess(i, i.operands[0], access, together, nullptr);
}

}  // namespace smolvm::emulation::codegen
