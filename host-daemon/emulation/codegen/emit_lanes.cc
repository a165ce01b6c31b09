// Several threads at once: control flow under masks, and memory accesses of all lanes together.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <bit>

#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation::codegen {

using ptx::Opcode;
using ptx::StateSpace;

llvm::Type* FunctionEmitter::LaneVector(llvm::Type* element) {
  return llvm::FixedVectorType::get(element, lanes());
}

// {0, step, 2 step …} as 32- or 64-bit integers.
V FunctionEmitter::Counting(unsigned bits, uint64_t step) {
  std::vector<llvm::Constant*> values;
  for (unsigned k = 0; k < lanes(); ++k)
    values.push_back(llvm::ConstantInt::get(Int(bits), k * step));
  return llvm::ConstantVector::get(values);
}

// A mask as a number, lane 0 lowest.
V FunctionEmitter::MaskBits(V mask) {
  return b.llvm::IRBuilder<>::CreateBitCast(mask, Int(lanes()));
}
V FunctionEmitter::Any(V mask) {
  return b.CreateICmpNE(MaskBits(mask), llvm::ConstantInt::get(Int(lanes()), 0));
}
V FunctionEmitter::All(V mask) {
  return b.CreateICmpEQ(MaskBits(mask), llvm::Constant::getAllOnesValue(Int(lanes())));
}
// Not an `and`: of lanes that are not in the mask the other operand may be poison.
V FunctionEmitter::Among(V mask, V lanes_too) {
  return b.CreateSelect(mask, b.Widened(lanes_too, mask),
                        llvm::Constant::getNullValue(mask->getType()));
}

V FunctionEmitter::Lane(V value, V index) {
  if (!LaneBuilder::IsLanes(value)) return value;
  if (!value->getType()->getScalarType()->isIntegerTy(1))
    return b.CreateExtractElement(value, index);
  V bits = b.CreateZExt(MaskBits(value), b.getInt32Ty());
  return b.CreateTrunc(b.CreateLShr(bits, index), b.getInt1Ty());
}

V FunctionEmitter::WithLane(V value, V element, V index) {
  if (!element->getType()->isIntegerTy(1)) return b.CreateInsertElement(value, element, index);
  V bits = b.CreateZExt(MaskBits(value), b.getInt32Ty());
  V cleared = b.CreateAnd(bits, b.CreateNot(b.CreateShl(I32(1), index)));
  V set = b.CreateOr(cleared, b.CreateShl(b.CreateZExt(element, b.getInt32Ty()), index));
  return b.llvm::IRBuilder<>::CreateBitCast(b.CreateTrunc(set, Int(lanes())), value->getType());
}

V FunctionEmitter::ActiveLanes() {
  return guard_ == nullptr ? block_mask_ : Among(block_mask_, guard_);
}

// Tells faults which thread it is.
void FunctionEmitter::NoteThread(V lane) {
  b.CreateStore(lane,
                b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), ctx, offsetof(ThreadContext, lane_at)));
}
V FunctionEmitter::NoteFirstActive() {
  V bits = b.CreateZExt(MaskBits(ActiveLanes()), b.getInt32Ty());
  V first = Intrinsic(llvm::Intrinsic::cttz, {bits, b.getTrue()});
  NoteThread(first);
  return first;
}

void FunctionEmitter::UnderAny(V mask, const std::function<void()>& body) {
  llvm::BasicBlock* then = NewBlock("any");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateCondBr(Any(mask), then, after);
  b.SetInsertPoint(then);
  body();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

// Runs `body` for one lane of the mask after the other: a loop, so that its code is there once.
void FunctionEmitter::ForEachLane(V mask, const std::function<void(V lane)>& body) {
  V all = b.CreateZExt(MaskBits(mask), b.getInt32Ty());
  llvm::BasicBlock* before = b.GetInsertBlock();
  llvm::BasicBlock* loop = NewBlock("lane");
  llvm::BasicBlock* after = NewBlock("lanes_done");
  b.CreateCondBr(b.CreateICmpNE(all, I32(0)), loop, after);
  b.SetInsertPoint(loop);
  llvm::PHINode* left = b.CreatePHI(b.getInt32Ty(), 2);
  left->addIncoming(all, before);
  body(Intrinsic(llvm::Intrinsic::cttz, {left, b.getTrue()}));
  V next = b.CreateAnd(left, b.CreateSub(left, I32(1)));
  left->addIncoming(next, b.GetInsertBlock());
  b.CreateCondBr(b.CreateICmpNE(next, I32(0)), loop, after);
  b.SetInsertPoint(after);
}

// The instruction as one thread runs it, for each active lane.
void FunctionEmitter::EmitEach(const Instruction& i) {
  ForEachLane(ActiveLanes(), [&](V lane) {
    NoteThread(lane);
    lane_ = lane;
    (this->*HandlerOf(i.opcode))(i);
    lane_ = nullptr;
  });
}

// A pure helper of vectors: lane by lane, through memory.
V FunctionEmitter::CallHelperForLanes(Helper helper, llvm::ArrayRef<V> arguments) {
  llvm::Type* type = m.HelperType(helper)->getReturnType();
  llvm::IRBuilder<> entry(&fn->getEntryBlock(), fn->getEntryBlock().begin());
  std::vector<V> slots;
  for (V argument : arguments) {
    V slot = nullptr;
    if (LaneBuilder::IsLanes(argument)) {
      slot = entry.CreateAlloca(argument->getType());
      b.CreateStore(argument, slot);
    }
    slots.push_back(slot);
  }
  V results = entry.CreateAlloca(LaneVector(type));
  b.CreateStore(llvm::Constant::getNullValue(LaneVector(type)), results);
  ForEachLane(ActiveLanes(), [&](V lane) {
    std::vector<V> scalars;
    for (size_t k = 0; k < slots.size(); ++k) {
      if (slots[k] == nullptr) {
        scalars.push_back(arguments[k]);
        continue;
      }
      llvm::Type* element = arguments[k]->getType()->getScalarType();
      scalars.push_back(b.CreateLoad(element, b.CreateGEP(element, slots[k], lane)));
    }
    b.CreateStore(CallHelperOnce(helper, scalars), b.CreateGEP(type, results, lane));
  });
  return b.CreateLoad(LaneVector(type), results);
}

// ---- memory ----

// Whether `count` accesses of access.bytes each, from `address` on, stay inside the space's memory
// and are aligned; for each lane when addresses are.
V FunctionEmitter::IsInside(V address, unsigned count, Access access) {
  const unsigned log2 = static_cast<unsigned>(std::countr_zero(access.bytes));
  V offset = address, bytes;
  switch (access.space) {
    case StateSpace::kShared:
    case StateSpace::kSharedCluster:
      bytes = shared_bytes;
      break;
    case StateSpace::kParam:
      bytes = LoadContext(b, block_ctx, offsetof(BlockContext, param_bytes), b.getInt64Ty(), true);
      break;
    default:  // generic addresses in other windows are found one by one
      offset = b.CreateSub(address, I64(kArenaBase));
      bytes = I64(m.options().device_bytes);
      break;
  }
  V units = b.CreateLShr(bytes, log2);
  V starts = Intrinsic(llvm::Intrinsic::usub_sat, {units, I64(count - 1)});
  V rotated = log2 == 0 ? offset : Intrinsic(llvm::Intrinsic::fshr, {offset, offset, I64(log2)});
  return b.CreateICmpULT(rotated, starts);
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
  if (count == 1 && (size == 4 || size == 8)) return EmitAccess(i, operand, access, together, scattered);
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
  if (count == 1 && (size == 4 || size == 8)) return EmitAccess(i, i.operands[0], access, together, scattered);
  EmitAccess(i, i.operands[0], access, together, nullptr);
}

// ---- control flow ----

void FunctionEmitter::EmitForLanes(const Instruction& i) {
  if (HandlerOf(i.opcode) == nullptr) return Refuse(i);
  guard_ = i.guarded() ? GuardOf(i) : nullptr;
  switch (LaneFormOf(i)) {
    case LaneForm::kTogether:
      (this->*HandlerOf(i.opcode))(i);
      break;
    case LaneForm::kLoad:
      EmitLoadForLanes(i);
      break;
    case LaneForm::kStore:
      EmitStoreForLanes(i);
      break;
    case LaneForm::kEach:
      EmitEach(i);
      break;
  }
  guard_ = nullptr;
}

void FunctionEmitter::Send(uint32_t block, V mask) {
  V waiting = b.CreateLoad(mask->getType(), masks_[block]);
  b.CreateStore(b.CreateOr(waiting, mask), masks_[block]);
}

void FunctionEmitter::EmitEndForLanes(uint32_t block, const Instruction& i) {
  const ptx::Block& shape = facts.cfg.blocks[block];
  V taken = i.guarded() ? Among(block_mask_, GuardOf(i)) : block_mask_;
  if (i.guarded()) Send(shape.successors.back(), Among(block_mask_, b.CreateNot(GuardOf(i))));
  if (i.opcode == Opcode::kBra) return Send(shape.successors[0], taken);
  if (i.opcode != Opcode::kTrap) return;  // their lanes go nowhere
  UnderAny(taken, [&] {
    guard_ = taken;
    NoteFirstActive();
    guard_ = nullptr;
    CallHelper(Helper::kFault, {ctx, I32(static_cast<uint32_t>(FaultKind::kTrap)), I64(0)});
  });
}

void FunctionEmitter::EmitBlockForLanes(uint32_t block) {
  const ptx::Block& shape = facts.cfg.blocks[block];
  divergent_ = plan_->is_divergent[block];
  for (uint32_t k = shape.begin; k < shape.end && error_.empty(); ++k) {
    const Instruction& i = f.body[k];
    if (ptx::EndsBlock(i.opcode)) return EmitEndForLanes(block, i);
    EmitForLanes(i);
  }
  Send(shape.successors[0], block_mask_);
}

void FunctionEmitter::EmitLaneBlocks() {
  llvm::Type* mask_type = LaneVector(b.getInt1Ty());
  V nobody = llvm::Constant::getNullValue(mask_type);
  const size_t count = facts.cfg.blocks.size();
  for (size_t k = 0; k < count; ++k) {
    masks_.push_back(b.CreateAlloca(mask_type));
    b.CreateStore(nobody, masks_.back());
  }
  V width = LoadContext(b, block_ctx, offsetof(BlockContext, ntid), b.getInt32Ty(), true);
  b.CreateStore(b.CreateICmpULT(ThreadIndex(0), width), masks_[0]);
  llvm::BasicBlock* visit = NewBlock("visit");
  b.CreateBr(visit);
  blocks_.assign(count, nullptr);
  for (uint32_t k = 0; k < count && error_.empty(); ++k) {
    if (!facts.cfg.reachable[k]) continue;
    blocks_[k] = visit;
    b.SetInsertPoint(visit);
    block_mask_ = b.CreateLoad(mask_type, masks_[k]);
    b.CreateStore(nobody, masks_[k]);
    visit = NewBlock("visit");
    if (!plan_->only_ends[k]) {
      llvm::BasicBlock* run = NewBlock("block");
      llvm::BasicBlock* after = NewBlock("visited");
      b.CreateCondBr(Any(block_mask_), run, after);
      b.SetInsertPoint(run);
      EmitBlockForLanes(k);
      b.CreateBr(after);
      b.SetInsertPoint(after);
    }
    for (const uint32_t head : plan_->heads_after[k]) {
      llvm::BasicBlock* on = NewBlock("on");
      b.CreateCondBr(Any(b.CreateLoad(mask_type, masks_[head])), blocks_[head], on);
      b.SetInsertPoint(on);
    }
    b.CreateBr(visit);
  }
  b.SetInsertPoint(visit);
  Return();
}

}  // namespace smolvm::emulation::codegen
