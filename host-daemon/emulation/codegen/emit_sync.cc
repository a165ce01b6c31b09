// Barriers and warp operations: calls into the scheduler, which switches fibres.
#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/runtime/block.h"

namespace smolvm::emulation::codegen {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Reduction;

void FunctionEmitter::EmitBarrier(const Instruction& i) {
  V id = Read(i.operands[0], Type::kU32);
  V count = i.operands.size() > 1 ? Read(i.operands[1], Type::kU32) : static_cast<V>(I32(0));
  if (i.opcode == Opcode::kBarArrive) {
    CallHelper(Helper::kBarArrive, {ctx, id, count});
    return;
  }
  const bool is_plain =
      i.operands.size() == 1 && i.operands[0].is_immediate() && i.operands[0].bits == 0;
  if (coroutine != nullptr && is_plain) {
    // __syncthreads(): the scheduler looks when the thread has returned. A plain store, so that one
    // thread's turn does not wait for the one's before it.
    StoreContext(b, block_ctx, offsetof(BlockContext, arrived), I32(1));
  } else {
    CallHelper(Helper::kBarSync, {ctx, id, count});
  }
  Suspend();
}

void FunctionEmitter::EmitBarRed(const Instruction& i) {
  BarrierRed op = BarrierRed::kPopc;
  if (i.modifiers.reduction == Reduction::kAnd) op = BarrierRed::kAnd;
  if (i.modifiers.reduction == Reduction::kOr) op = BarrierRed::kOr;
  const bool counted = i.operands.size() == 4;
  V id = Read(i.operands[1], Type::kU32);
  V count = counted ? Read(i.operands[2], Type::kU32) : static_cast<V>(I32(0));
  V predicate = b.CreateZExt(ReadPredicate(i.operands[counted ? 3 : 2]), b.getInt32Ty());
  V result =
      CallHelper(Helper::kBarRed, {ctx, id, count, I32(static_cast<uint32_t>(op)), predicate});
  if (coroutine != nullptr) {
    Suspend();
    result = CallHelper(Helper::kBarResult, {ctx, id, I32(static_cast<uint32_t>(op))});
  }
  if (op == BarrierRed::kPopc) return WriteBits(i.operands[0], result, Type::kU32);
  WritePredicate(i.operands[0], b.CreateICmpNE(result, I32(0)));
}

// A cluster is one block here: its barrier is one of the block's, beside the sixteen that have
// numbers. Arriving waits for nothing, so it is left to the wait.
void FunctionEmitter::EmitClusterWait(const Instruction&) {
  CallHelper(Helper::kBarSync, {ctx, I32(kClusterBarrier), I32(0)});
  Suspend();
}

// The result of a warp operation: on a fibre what its helper returned; a coroutine asks for it when
// it goes on.
V FunctionEmitter::AfterMeeting(V result) {
  if (coroutine == nullptr) return result;
  Suspend();
  V packed = CallHelper(Helper::kWarpResult, {ctx});
  return b.CreateTrunc(packed, result->getType());
}

void FunctionEmitter::EmitWarpSync(const Instruction& i) {
  CallHelper(Helper::kWarpSync, {ctx, Read(i.operands[0], Type::kU32)});
  Suspend();
}

void FunctionEmitter::EmitShfl(const Instruction& i) {
  ShuffleMode mode = ShuffleMode::kIdx;
  switch (i.modifiers.lane) {
    case ptx::Lane::kUp:
      mode = ShuffleMode::kUp;
      break;
    case ptx::Lane::kDown:
      mode = ShuffleMode::kDown;
      break;
    case ptx::Lane::kBfly:
      mode = ShuffleMode::kBfly;
      break;
    default:
      break;
  }
  // Without .sync (before sm_70) the whole warp is meant.
  V mask = i.operands.size() > 4 ? Read(i.operands[4], Type::kU32) : static_cast<V>(I32(~0u));
  V packed = AfterMeeting(
      CallHelper(Helper::kShfl,
                 {ctx, I32(static_cast<uint32_t>(mode)), mask, ReadBits(i.operands[1], Type::kB32),
                  Read(i.operands[2], Type::kU32), Read(i.operands[3], Type::kU32)}));
  WriteBits(i.operands[0], b.CreateTrunc(packed, b.getInt32Ty()), Type::kB32);
  WritePredicate(i.second_destination, b.CreateTrunc(b.CreateLShr(packed, 32), b.getInt1Ty()));
}

void FunctionEmitter::EmitVote(const Instruction& i) {
  VoteMode mode = VoteMode::kAll;
  switch (i.modifiers.vote) {
    case ptx::Vote::kAny:
      mode = VoteMode::kAny;
      break;
    case ptx::Vote::kUni:
      mode = VoteMode::kUni;
      break;
    case ptx::Vote::kBallot:
      mode = VoteMode::kBallot;
      break;
    default:
      break;
  }
  V predicate = b.CreateZExt(ReadPredicate(i.operands[1]), b.getInt32Ty());
  V mask = i.operands.size() > 2 ? Read(i.operands[2], Type::kU32) : static_cast<V>(I32(~0u));
  V result = AfterMeeting(
      CallHelper(Helper::kVote, {ctx, I32(static_cast<uint32_t>(mode)), mask, predicate}));
  if (mode == VoteMode::kBallot) return WriteBits(i.operands[0], result, Type::kB32);
  WritePredicate(i.operands[0], b.CreateICmpNE(result, I32(0)));
}

void FunctionEmitter::EmitMatch(const Instruction& i) {
  const bool all = i.modifiers.vote == ptx::Vote::kAll;
  V value = Resize(ReadBits(i.operands[1], i.type()), 64, false);
  V packed = AfterMeeting(
      CallHelper(Helper::kMatch, {ctx, I32(all), Read(i.operands[2], Type::kU32), value}));
  WriteBits(i.operands[0], b.CreateTrunc(packed, b.getInt32Ty()), Type::kB32);
  if (all)
    WritePredicate(i.second_destination, b.CreateTrunc(b.CreateLShr(packed, 32), b.getInt1Ty()));
}

void FunctionEmitter::EmitRedux(const Instruction& i) {
  const Type type = i.type();
  if (ptx::BitsOf(type) != 32 || ptx::IsFloat(type)) return Refuse(i);
  ReduxOp op;
  switch (i.modifiers.reduction) {
    case Reduction::kAdd:
      op = ReduxOp::kAdd;
      break;
    case Reduction::kMin:
      op = ptx::IsSigned(type) ? ReduxOp::kMinS : ReduxOp::kMinU;
      break;
    case Reduction::kMax:
      op = ptx::IsSigned(type) ? ReduxOp::kMaxS : ReduxOp::kMaxU;
      break;
    case Reduction::kAnd:
      op = ReduxOp::kAnd;
      break;
    case Reduction::kOr:
      op = ReduxOp::kOr;
      break;
    case Reduction::kXor:
      op = ReduxOp::kXor;
      break;
    default:
      return Refuse(i);
  }
  V result = AfterMeeting(
      CallHelper(Helper::kRedux, {ctx, I32(static_cast<uint32_t>(op)),
                                  Read(i.operands[2], Type::kU32), ReadBits(i.operands[1], type)}));
  WriteBits(i.operands[0], result, type);
}

void FunctionEmitter::EmitActivemask(const Instruction& i) {
  // Threads have converged when they wait at the same instruction: its index names it.
  const auto site = static_cast<uint32_t>(&i - f.body.data());
  WriteBits(i.operands[0], AfterMeeting(CallHelper(Helper::kActiveMask, {ctx, I32(site)})),
            Type::kB32);
}

void FunctionEmitter::EmitElect(const Instruction& i) {
  V packed = AfterMeeting(CallHelper(Helper::kElect, {ctx, Read(i.operands[1], Type::kU32)}));
  WriteBits(i.operands[0], b.CreateTrunc(packed, b.getInt32Ty()), Type::kB32);
  WritePredicate(i.second_destination, b.CreateTrunc(b.CreateLShr(packed, 32), b.getInt1Ty()));
}

void FunctionEmitter::EmitNanosleep(const Instruction& i) {
  CallHelper(Helper::kNanoSleep, {ctx, Read(i.operands[0], Type::kU32)});
  Suspend();
}

}  // namespace smolvm::emulation::codegen
