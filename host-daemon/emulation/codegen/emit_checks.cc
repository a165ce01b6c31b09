// The checks that keep a kernel inside its memory: the only place that makes a Checked.
//
// One comparison checks both the range and the alignment: the offset is rotated right by
// log2(size), so that misaligned low bits become high ones. Windows lie behind device memory,
// beside those of other blocks and kernels. A generic address may be in device memory or in one of
// the thread's own windows; a global one, in device memory only.
//
// Left out are the checks of what is proved: StaysInside() for variables, and for frames what
// analysis.cc knows of the depth of calls (KernelFacts::unbounded_stack).
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <bit>

#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation::codegen {

using ptx::StateSpace;
using ptx::SymbolKind;
using ptx::Variable;

class CheckedMaker {
 public:
  explicit CheckedMaker(Isolation& isolation) : isolation_(isolation) {}

  Checked Memory(V pointer, uint64_t bytes, bool is_writable) {
    // A constant address is one value for all that name it.
    Isolation::Region& region = isolation_.regions_[pointer];
    region.bytes = std::max(region.bytes, bytes);
    region.is_writable = region.is_writable || is_writable;
    return Checked(pointer);
  }
  void Target(V target, Isolation::CallBlocks blocks) { isolation_.targets_[target] = blocks; }
  static Checked Inside(V pointer) { return Checked(pointer); }

 private:
  Isolation& isolation_;
};

namespace {
bool IsShared(StateSpace space) {
  return space == StateSpace::kShared || space == StateSpace::kSharedCluster;
}
}  // namespace

void FunctionEmitter::FaultIf(V bad, V address, unsigned bytes) {
  llvm::BasicBlock* fault = NewBlock("fault");
  llvm::BasicBlock* good = NewBlock("good");
  b.CreateCondBr(bad, fault, good, llvm::MDBuilder(c).createBranchWeights(1, 1 << 20));
  b.SetInsertPoint(fault);
  if (plan_ != nullptr && lane_ == nullptr) NoteFirstActive();
  b.raw().CreateCall(m.access_fault(), {ctx, address, I64(bytes)});
  b.CreateUnreachable();
  b.SetInsertPoint(good);
}

void FunctionEmitter::RaiseIf(V bad, FaultKind kind) {
  llvm::BasicBlock* fault = NewBlock("fault");
  llvm::BasicBlock* good = NewBlock("good");
  b.CreateCondBr(bad, fault, good, llvm::MDBuilder(c).createBranchWeights(1, 1 << 20));
  b.SetInsertPoint(fault);
  CallHelper(Helper::kFault, {ctx, I32(static_cast<uint32_t>(kind)), I64(0)});
  b.CreateUnreachable();
  b.SetInsertPoint(good);
}

// The memory that accesses of the space are held against: where in it the address lies, and its
// size. Of a generic address, device memory; the thread's own windows are looked at apart.
std::pair<V, V> FunctionEmitter::BoundsOf(V address, StateSpace space) {
  if (IsShared(space)) return {address, shared_bytes};
  if (space == StateSpace::kLocal) return {address, local_bytes};
  if (space == StateSpace::kParam) {
    return {address,
            LoadContext(b, block_ctx, offsetof(BlockContext, param_bytes), b.getInt64Ty(), true)};
  }
  return {b.CreateSub(address, I64(kArenaBase)), I64(m.options().device_bytes)};
}

// Whether an access at `offset` from the start of a region leaves it, or is misaligned.
V FunctionEmitter::Outside(V offset, V bytes, unsigned log2) {
  V rotated = log2 == 0 ? offset : Intrinsic(llvm::Intrinsic::fshr, {offset, offset, I64(log2)});
  return b.CreateICmpUGE(rotated, b.CreateLShr(bytes, log2));
}

// A generic address outside device memory: good in a window of the thread's own.
V FunctionEmitter::OutsideWindows(V address, unsigned log2, bool writes) {
  const auto outside = [&](V base, V bytes) {
    return Outside(b.CreateSub(address, base), bytes, log2);
  };
  V workspace =
      LoadContext(b, block_ctx, offsetof(BlockContext, grid_workspace), b.getInt64Ty(), true);
  // Parameters, which may only be read, and the grid's workspace behind them (launch.cc).
  V first = writes ? workspace : params_base;
  V bytes = b.CreateAdd(b.CreateSub(workspace, first), I64(kGridWorkspaceBytes));
  V bad = b.CreateAnd(outside(shared_base, shared_bytes), outside(local_base, local_bytes));
  return b.CreateAnd(bad, outside(first, bytes));
}

// One number wherever it is looked at: what LLVM calls undefined, memory that another thread is
// writing for one, could otherwise be good for the check and bad for the access.
V FunctionEmitter::Settled(V address) {
  return llvm::isa<llvm::Constant>(address) ? address : b.CreateFreeze(address);
}

Checked FunctionEmitter::MemoryAt(V generic, uint64_t bytes, bool is_writable) {
  V pointer = b.raw().CreateIntToPtr(generic, LaneBuilder::ShapedAs(generic, m.ptr()));
  return CheckedMaker(m.isolation()).Memory(pointer, bytes, is_writable);
}

Checked FunctionEmitter::CheckedAt(V address, Access access) {
  address = Settled(address);
  const unsigned log2 = std::countr_zero(access.bytes);
  V generic = GenericOf(address, access.space);
  const auto [offset, bytes] = BoundsOf(address, access.space);
  V bad = Outside(offset, bytes, log2);
  const bool is_generic = access.space == StateSpace::kNone;
  llvm::BasicBlock* good = nullptr;
  if (is_generic) {
    llvm::BasicBlock* windows = NewBlock("windows");
    good = NewBlock("good");
    b.CreateCondBr(bad, windows, good);
    b.SetInsertPoint(windows);
    bad = OutsideWindows(address, log2, access.writes());
  }
  FaultIf(bad, generic, access.bytes);
  if (is_generic) {
    b.CreateBr(good);
    b.SetInsertPoint(good);
  }
  return MemoryAt(generic, access.bytes, access.writes());
}

bool StaysInside(const Variable& variable, int64_t offset, uint64_t bytes, uint64_t alignment) {
  if (variable.is_unsized || offset < 0) return false;
  const auto begin = static_cast<uint64_t>(offset);
  if (begin % alignment != 0 || variable.alignment % alignment != 0) return false;
  return begin <= variable.bytes && bytes <= variable.bytes - begin;
}

// A symbol with a constant offset that stays inside it needs no check. `*space` becomes the
// symbol's own, so that a generic access to a shared variable goes to the window.
bool FunctionEmitter::IsKnownGood(const Operand& address, Access access, StateSpace* space) {
  if (address.base != Operand::AddressBase::kSymbol || address.symbol.kind == SymbolKind::kFunction)
    return false;
  const Variable& variable = ptx::VariableOf(m.source(), f, address.symbol);
  if (*space == StateSpace::kNone) *space = variable.space;
  return StaysInside(variable, address.offset, access.bytes, access.bytes);
}

Checked FunctionEmitter::Pointer(const Instruction& i, const Operand& address, Access access) {
  const bool known = IsKnownGood(address, access, &access.space);
  if (access.space == StateSpace::kParam && (!is_kernel || known))
    return ParamPointer(i, address, access);
  V value = address.base == Operand::AddressBase::kSymbol
                ? SymbolAddress(i, address.symbol, address.offset)
                : AddressValue(address);
  if (!known) return CheckedAt(value, access);
  return MemoryAt(GenericOf(value, access.space), access.bytes, access.writes());
}

Checked FunctionEmitter::Nowhere(const Instruction& i, const char* why) {
  Refuse(i, why);
  return CheckedMaker::Inside(llvm::PoisonValue::get(m.ptr()));
}

// In the frame of this call, which EnterFrame() has looked at.
Checked FunctionEmitter::InFrame(uint64_t offset, uint64_t bytes) {
  if (offset > facts.frame_bytes || bytes > facts.frame_bytes - offset) {
    error_ = "internal: beyond the frame";
    return CheckedMaker::Inside(llvm::PoisonValue::get(m.ptr()));
  }
  V address = b.CreateAdd(frame, I64(offset));
  return MemoryAt(GenericOf(address, StateSpace::kLocal), bytes, true);
}

// .param: of a kernel, its block in the arena; of a function, what the caller passed; of a call,
// the caller's variable.
Checked FunctionEmitter::ParamPointer(const Instruction& i, const Operand& address, Access access) {
  if (address.base != Operand::AddressBase::kSymbol) {
    if (is_kernel)
      return CheckedAt(AddressValue(address), {StateSpace::kParam, access.bytes, access.use});
    return Nowhere(i, "parameter addressed by a register");
  }
  const Variable& variable = ptx::VariableOf(m.source(), f, address.symbol);
  if (variable.space == StateSpace::kReg || !StaysInside(variable, address.offset, access.bytes, 1))
    return Nowhere(i, "access outside a parameter");
  const auto offset = static_cast<uint64_t>(address.offset);
  const uint32_t index = address.symbol.index;
  switch (address.symbol.kind) {
    case SymbolKind::kParam:
      if (is_kernel && access.writes()) return Nowhere(i, "a kernel's parameter");
      if (is_kernel)
        return At(MemoryAt(params_base, f.param_bytes, false), variable.offset + offset);
      if (facts.param_offsets[index] != kNotInFrame)
        return At(InFrame(facts.param_offsets[index], variable.bytes), offset);
      return At(arguments_, param_layout_.offsets[index] + offset);
    case SymbolKind::kReturn:
      if (is_kernel) break;
      return At(results_, return_layout_.offsets[index] + offset);
    case SymbolKind::kLocal:
      if (variable.space != StateSpace::kParam) break;
      return At(InFrame(facts.local_offsets[index], variable.bytes), offset);
    default:
      break;
  }
  return Nowhere(i, "parameter access");
}

// A function's arguments and results are in its caller's frame.
void FunctionEmitter::FindCallBlocks() {
  param_layout_ = LayOut(f.params);
  return_layout_ = LayOut(f.returns);
  CheckedMaker maker(m.isolation());
  arguments_ = maker.Memory(fn->getArg(1), param_layout_.bytes, true);
  results_ = maker.Memory(fn->getArg(2), return_layout_.bytes, true);
  maker.Target(fn, {param_layout_.bytes, return_layout_.bytes});
}

// What a handle points to, or a fault: a function whose layout has this number.
V FunctionEmitter::CheckedTarget(const Instruction& i, V handle, const Signature& signature) {
  const size_t count = m.CallTableSize();
  if (count == 0) {
    Refuse(i, "no function's address is taken");
    return llvm::PoisonValue::get(m.ptr());
  }
  V offset = b.CreateSub(Settled(handle), I64(kFunctionHandleBase));
  V bad = b.CreateOr(b.CreateICmpUGE(offset, I64(count * kFunctionHandleStride)),
                     b.CreateICmpNE(b.CreateAnd(offset, I64(kFunctionHandleStride - 1)), I64(0)));
  RaiseIf(bad, FaultKind::kIllegalCall);
  // The table's entries are as large as the stride between handles.
  CheckedMaker maker(m.isolation());
  const Checked entry = maker.Memory(b.raw().CreateGEP(b.getInt8Ty(), m.CallTable(), offset),
                                     kFunctionHandleStride, false);
  V layout = LoadFrom(At(entry, 8), b.getInt64Ty(), 8);
  V wanted = I64(m.layouts().Of(*signature.returns, *signature.params));
  RaiseIf(b.CreateICmpNE(layout, wanted), FaultKind::kIllegalCall);
  V target = LoadFrom(entry, m.ptr(), 8);
  maker.Target(target, {LayOut(*signature.params).bytes, LayOut(*signature.returns).bytes});
  return target;
}

// One element of a slot that holds one for each lane. `lane` counts from 0 and is less than
// lanes(): it is the number of a bit that is set in a mask.
Checked FunctionEmitter::LaneOf(V slot, llvm::Type* element, V lane) {
  V pointer = b.raw().CreateGEP(element, slot, lane);
  const uint64_t bytes = m.module().getDataLayout().getTypeStoreSize(element);
  return CheckedMaker(m.isolation()).Memory(pointer, bytes, true);
}

V FunctionEmitter::LoadLane(V slot, llvm::Type* element, V lane) {
  return b.raw().CreateLoad(element, LaneOf(slot, element, lane).pointer());
}

void FunctionEmitter::StoreLane(V slot, V value, V lane) {
  b.raw().CreateStore(value, LaneOf(slot, value->getType(), lane).pointer());
}

// Branches to `outside` unless the lanes' accesses, side by side from `first` on, may be made as
// one, and all of `together`; goes on where they may.
Checked FunctionEmitter::RowFrom(V first, V together, Access access, llvm::BasicBlock* outside) {
  llvm::BasicBlock* inside = NewBlock("together");
  first = Settled(first);
  b.CreateCondBr(b.CreateAnd(together, IsInside(first, lanes(), access)), inside, outside,
                 llvm::MDBuilder(c).createBranchWeights(1 << 10, 1));
  b.SetInsertPoint(inside);
  return MemoryAt(GenericOf(first, access.space), uint64_t{access.bytes} * lanes(),
                  access.writes());
}

// The same of each active lane's own address.
Checked FunctionEmitter::ScatteredAt(V addresses, V mask, Access access,
                                     llvm::BasicBlock* outside) {
  llvm::BasicBlock* inside = NewBlock("scattered");
  addresses = Settled(addresses);
  V bad = b.CreateNot(b.Widened(IsInside(addresses, 1, access), mask));
  b.CreateCondBr(Any(Among(mask, bad)), outside, inside);
  b.SetInsertPoint(inside);
  return MemoryAt(GenericOf(addresses, access.space), access.bytes, access.writes());
}

// Whether `count` accesses of access.bytes each, from `address` on, stay inside the space's memory
// and are aligned; for each lane when addresses are.
V FunctionEmitter::IsInside(V address, unsigned count, Access access) {
  const auto [offset, bytes] = BoundsOf(address, access.space);
  V starts = Intrinsic(llvm::Intrinsic::usub_sat, {bytes, I64((count - 1) * access.bytes)});
  return b.CreateNot(
      Outside(offset, starts, static_cast<unsigned>(std::countr_zero(access.bytes))));
}

// ---- what may be done with a Checked ----

Checked FunctionEmitter::At(Checked base, uint64_t offset) {
  if (offset == 0) return base;
  return CheckedMaker::Inside(
      b.raw().CreateConstInBoundsGEP1_64(b.getInt8Ty(), base.pointer(), offset));
}

llvm::LoadInst* FunctionEmitter::LoadFrom(Checked from, llvm::Type* type, uint64_t alignment) {
  return b.raw().CreateAlignedLoad(type, from.pointer(), llvm::Align(alignment));
}

llvm::StoreInst* FunctionEmitter::StoreTo(Checked to, V value, uint64_t alignment) {
  return b.raw().CreateAlignedStore(value, to.pointer(), llvm::Align(alignment));
}

void FunctionEmitter::Copy(Checked to, Checked from, uint64_t bytes) {
  if (bytes == 0) return;
  b.raw().CreateMemCpy(to.pointer(), llvm::Align(1), from.pointer(), llvm::Align(1), bytes);
}

void FunctionEmitter::Zero(Checked at, uint64_t bytes) {
  if (bytes != 0) b.raw().CreateMemSet(at.pointer(), b.getInt8(0), bytes, llvm::Align(1));
}

}  // namespace smolvm::emulation::codegen
