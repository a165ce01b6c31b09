// Loads and stores of several lanes: together where their addresses allow it.
#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::StateSpace;

// The common case is one wide access: all lanes active, each at its left neighbour's end. Then
// come the processor's own gathers and scatters (null where there are none for the type; only
// AVX-512's, others cost LLVM seconds), and all else goes lane by lane, as do bad addresses, which
// that finds and reports.
void FunctionEmitter::EmitAccess(const Instruction& i, const Operand& operand, Access access,
                                 const std::function<void(Checked row)>& together,
                                 const std::function<void(Checked places, V mask)>& scattered) {
  V address = operand.base == Operand::AddressBase::kSymbol
                  ? SymbolAddress(i, operand.symbol, operand.offset)
                  : AddressValue(operand);
  if (!LaneBuilder::IsLanes(address)) {
    // All to one place: one load serves them, and of several stores one is the last.
    const auto once = [&] {
      if (access.writes()) lane_ = NoteFirstActive();
      (this->*HandlerOf(i.opcode))(i);
      lane_ = nullptr;
    };
    return guard_ == nullptr ? once() : UnderAny(ActiveLanes(), once);
  }
  address = Settled(address);
  V mask = ActiveLanes();
  V first = b.CreateExtractElement(address, uint64_t{0});
  V neighbours = b.CreateICmpEQ(address, b.CreateAdd(first, Counting(64, access.bytes)));
  llvm::BasicBlock* slow = NewBlock("each");
  llvm::BasicBlock* after = NewBlock("after");
  const Checked row = RowFrom(first, All(Among(mask, neighbours)), access, slow);
  is_full_ = true;
  together(row);
  is_full_ = false;
  b.CreateBr(after);
  b.SetInsertPoint(slow);
  if (m.has_avx512() && scattered != nullptr) {
    slow = NewBlock("each");
    const Checked places = ScatteredAt(address, mask, access, slow);
    scattered(places, mask);
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
  const auto together = [&](Checked row) {
    V all = LoadFrom(row, llvm::FixedVectorType::get(Int(size * 8), lanes() * count), size * count);
    const Operand& to = i.operands[0];
    if (to.kind != Operand::Kind::kVector) return WriteBits(to, all, type);
    for (unsigned k = 0; k < count; ++k) {
      std::vector<int> picked;
      for (unsigned lane = 0; lane < lanes(); ++lane)
        picked.push_back(static_cast<int>(lane * count + k));
      WriteBits(i.ElementsOf(to)[k], b.CreateShuffleVector(all, picked), type);
    }
  };
  const auto scattered = [&](Checked places, V mask) {
    llvm::Type* element = LaneVector(Int(size * 8));
    WriteBits(i.operands[0],
              b.raw().CreateMaskedGather(element, places.pointer(), llvm::Align(size), mask,
                                         llvm::Constant::getNullValue(element)),
              type);
  };
  const Access access{i.modifiers.space, size * count, Use::kRead};
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
  const auto together = [&](Checked row) {
    if (from.kind != Operand::Kind::kVector) {
      StoreTo(row, value(from), size);
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
    StoreTo(row, all, size * count);
  };
  const auto scattered = [&](Checked places, V mask) {
    b.raw().CreateMaskedScatter(value(from), places.pointer(), llvm::Align(size), mask);
  };
  const Access access{i.modifiers.space, size * count, Use::kWrite};
  if (count == 1 && (size == 4 || size == 8))
    return EmitAccess(i, i.operands[0], access, together, scattered);
  EmitAccess(i, i.operands[0], access, together, nullptr);
}

}  // namespace smolvm::emulation::codegen
