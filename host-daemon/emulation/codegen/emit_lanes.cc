// Several threads at once: lanes, masks, and control flow under them.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Opcode;

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
  StoreContext(b, ctx, offsetof(ThreadContext, lane_at), lane);
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
      b.raw().CreateStore(argument, slot);
    }
    slots.push_back(slot);
  }
  V results = entry.CreateAlloca(LaneVector(type));
  b.raw().CreateStore(llvm::Constant::getNullValue(LaneVector(type)), results);
  ForEachLane(ActiveLanes(), [&](V lane) {
    std::vector<V> scalars;
    for (size_t k = 0; k < slots.size(); ++k) {
      if (slots[k] == nullptr) {
        scalars.push_back(arguments[k]);
        continue;
      }
      llvm::Type* element = arguments[k]->getType()->getScalarType();
      scalars.push_back(LoadLane(slots[k], element, lane));
    }
    StoreLane(results, CallHelperOnce(helper, scalars), lane);
  });
  return b.raw().CreateLoad(LaneVector(type), results);
}

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
  V waiting = b.raw().CreateLoad(mask->getType(), masks_[block]);
  b.raw().CreateStore(b.CreateOr(waiting, mask), masks_[block]);
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
    b.raw().CreateStore(nobody, masks_.back());
  }
  V width = LoadContext(b, block_ctx, offsetof(BlockContext, ntid), b.getInt32Ty(), true);
  b.raw().CreateStore(b.CreateICmpULT(ThreadIndex(0), width), masks_[0]);
  llvm::BasicBlock* visit = NewBlock("visit");
  b.CreateBr(visit);
  blocks_.assign(count, nullptr);
  for (uint32_t k = 0; k < count && error_.empty(); ++k) {
    if (!facts.cfg.reachable[k]) continue;
    blocks_[k] = visit;
    b.SetInsertPoint(visit);
    block_mask_ = b.raw().CreateLoad(mask_type, masks_[k]);
    b.raw().CreateStore(nobody, masks_[k]);
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
      b.CreateCondBr(Any(b.raw().CreateLoad(mask_type, masks_[head])), blocks_[head], on);
      b.SetInsertPoint(on);
    }
    b.CreateBr(visit);
  }
  b.SetInsertPoint(visit);
  Return();
}

}  // namespace smolvm::emulation::codegen
