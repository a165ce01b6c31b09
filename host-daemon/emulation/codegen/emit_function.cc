// Control flow, frames, and the walk over a function's instructions.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <algorithm>

#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/codegen/param_use.h"

namespace smolvm::emulation::codegen {

using ptx::Opcode;
using ptx::StateSpace;
using ptx::Variable;

FunctionEmitter::FunctionEmitter(ModuleEmitter& module, const FunctionFacts& function_facts,
                                 llvm::Function* function)
    : m(module),
      c(module.context()),
      f(module.source().functions[function_facts.index]),
      facts(function_facts),
      fn(function),
      b(c),
      is_kernel(function_facts.index == module.facts().kernel),
      plan_(module.plan()) {}

bool FunctionEmitter::Emit(std::string* error) {
  ctx = fn->getArg(0);
  b.SetInsertPoint(llvm::BasicBlock::Create(c, "entry", fn));
  if (!is_kernel) FindCallBlocks();
  LoadContexts();
  if (is_kernel && m.facts().is_coroutine) BeginCoroutine();
  PrepareRegisters();
  EnterFrame();
  ClearParamVariables();
  LoadRegisterParams();
  CopyParamsToFrame();
  if (plan_ != nullptr) {
    EmitLaneBlocks();
    *error = error_;
    return error_.empty();
  }
  for (size_t k = 0; k < facts.cfg.blocks.size(); ++k) {
    blocks_.push_back(facts.cfg.reachable[k] ? NewBlock("block") : nullptr);
  }
  b.CreateBr(blocks_[0]);
  for (const uint32_t block : facts.cfg.reverse_postorder) {
    if (error_.empty()) EmitBlock(block);
  }
  *error = error_;
  return error_.empty();
}

void FunctionEmitter::LoadContexts() {
  const auto field = [&](size_t offset, llvm::Type* type) {
    return LoadContext(b, block_ctx, offset, type, true);
  };
  block_ctx = LoadContext(b, ctx, offsetof(ThreadContext, block_context), m.ptr(), true);
  helpers = field(offsetof(BlockContext, helpers), m.ptr());
  shared_base = field(offsetof(BlockContext, shared_base), b.getInt64Ty());
  shared_bytes = field(offsetof(BlockContext, shared_bytes), b.getInt64Ty());
  local_bytes = field(offsetof(BlockContext, local_bytes), b.getInt64Ty());
  params_base = field(offsetof(BlockContext, params), b.getInt64Ty());
  local_base = LoadContext(b, ctx, offsetof(ThreadContext, local_base), b.getInt64Ty(), true);
}

// Registers are stack slots that LLVM promotes. They start as zero, so that a program that reads
// one it never wrote gets the same value each time.
void FunctionEmitter::PrepareRegisters() {
  NoteFloatDefinitions();
  const auto slot_of = [&](llvm::Type* type) {
    V slot = b.CreateAlloca(type);
    b.raw().CreateStore(llvm::Constant::getNullValue(type), slot);
    return slot;
  };
  // A declaration may name millions that nothing uses.
  registers_.assign(f.registers.size(), nullptr);
  const auto use = [&](uint32_t reg) {
    if (reg != ptx::kNoIndex && registers_[reg] == nullptr)
      registers_[reg] = slot_of(RegisterType(reg));
  };
  const auto use_of = [&](const Operand& operand) {
    const bool is_base =
        operand.kind == Operand::Kind::kAddress && operand.base == Operand::AddressBase::kRegister;
    if (operand.is_register() || is_base) use(operand.index);
  };
  for (const Instruction& i : f.body) {
    std::ranges::for_each(i.operands, use_of);
    std::ranges::for_each(i.elements, use_of);
    use_of(i.second_destination);
    use(i.guard);
  }
  for (const ptx::Call& call : f.calls) {
    use_of(call.callee);
    std::ranges::for_each(call.arguments, use_of);
    std::ranges::for_each(call.returns, use_of);
  }
  for (const Variable& param : f.params) use(param.reg);
  for (const Variable& result : f.returns) use(result.reg);
  carry = slot_of(plan_ == nullptr ? b.getInt1Ty() : LaneVector(b.getInt1Ty()));
}

// Also one without variables, where alloca may make some that end with it.
bool FunctionEmitter::KeepsFrame() const {
  return facts.frame_bytes != 0 || m.facts().unbounded_stack;
}

// Local memory of a call, what it passes and what it gets back are a frame in the thread's window
// of the arena, never on the machine's stack: a kernel may write anywhere in its local memory, and
// must not reach a return address.
void FunctionEmitter::EnterFrame() {
  frame = I64(0);
  if (!KeepsFrame()) return;
  if (!is_kernel) frame = LoadLocalUsed();
  V end = b.CreateAdd(frame, I64(facts.frame_bytes));
  if (m.facts().unbounded_stack)
    RaiseIf(b.CreateICmpUGT(end, local_bytes), FaultKind::kStackOverflow);
  StoreLocalUsed(end);
}

// Variables for calls start as zero where that can be seen.
void FunctionEmitter::ClearParamVariables() {
  const std::vector<bool> unwritten = ReadUnwritten(f, facts.cfg);
  for (size_t k = 0; k < f.variables.size(); ++k) {
    const Variable& variable = f.variables[k];
    if (variable.space != StateSpace::kParam || !unwritten[k]) continue;
    Zero(InFrame(facts.local_offsets[k], variable.bytes), variable.bytes);
  }
}

void FunctionEmitter::LeaveFrame() {
  if (KeepsFrame() && !is_kernel) StoreLocalUsed(frame);
}

V FunctionEmitter::LoadLocalUsed() {
  return LoadContext(b, ctx, offsetof(ThreadContext, local_used), b.getInt64Ty(), false);
}
void FunctionEmitter::StoreLocalUsed(V bytes) {
  StoreContext(b, ctx, offsetof(ThreadContext, local_used), bytes);
}

void FunctionEmitter::LoadRegisterParams() {
  if (is_kernel) return;
  for (size_t k = 0; k < f.params.size(); ++k) {
    const Variable& param = f.params[k];
    if (param.reg == ptx::kNoIndex) continue;
    const unsigned bits = std::max(8u, ptx::BitsOf(param.type));
    V value = LoadFrom(At(arguments_, param_layout_.offsets[k]), Int(bits), 1);
    Operand reg;
    reg.kind = Operand::Kind::kRegister;
    reg.index = param.reg;
    WriteBits(reg, value, param.type);
  }
}

void FunctionEmitter::CopyParamsToFrame() {
  if (is_kernel) return;
  for (uint32_t k = 0; k < f.params.size(); ++k) {
    if (facts.param_offsets[k] == kNotInFrame) continue;
    const uint64_t bytes = f.params[k].bytes;
    Copy(InFrame(facts.param_offsets[k], bytes), At(arguments_, param_layout_.offsets[k]), bytes);
  }
}

void FunctionEmitter::Refuse(const Instruction& i, const std::string& why) {
  if (!error_.empty()) return;
  error_ = Unsupported(i);
  if (!why.empty()) error_ += ": " + why;
}

V FunctionEmitter::GuardOf(const Instruction& i) {
  V guard = LoadRegister(i.guard);
  return i.guard_negated ? b.CreateNot(guard) : guard;
}

void FunctionEmitter::EmitBlock(uint32_t block) {
  const ptx::Block& shape = facts.cfg.blocks[block];
  b.SetInsertPoint(blocks_[block]);
  for (uint32_t k = shape.begin; k < shape.end && error_.empty(); ++k) {
    const Instruction& i = f.body[k];
    if (ptx::EndsBlock(i.opcode)) return EmitTerminator(block, i);
    EmitInstruction(i);
  }
  if (!error_.empty()) return;
  YieldOnBackEdge(block);
  b.CreateBr(blocks_[shape.successors[0]]);
}

void FunctionEmitter::EmitInstruction(const Instruction& i) {
  const Handler handler = HandlerOf(i.opcode);
  if (handler == nullptr) return Refuse(i);
  if (!i.guarded()) return (this->*handler)(i);
  llvm::BasicBlock* then = NewBlock("then");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateCondBr(GuardOf(i), then, after);
  b.SetInsertPoint(then);
  (this->*handler)(i);
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

// A loop that waits for another thread lets the others run: threads of a warp schedule
// independently.
void FunctionEmitter::YieldOnBackEdge(uint32_t block) {
  if (!facts.block_in_waiting_loop[block]) return;
  bool back = false;
  for (const uint32_t to : facts.cfg.blocks[block].successors) {
    back = back || (to <= block && facts.block_in_waiting_loop[to]);
  }
  if (!back) return;
  constexpr size_t kSpins = offsetof(ThreadContext, spins);
  V left = b.CreateSub(LoadContext(b, ctx, kSpins, b.getInt32Ty(), false), I32(1));
  StoreContext(b, ctx, kSpins, left);
  llvm::BasicBlock* yield = NewBlock("yield");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateCondBr(b.CreateICmpEQ(left, I32(0)), yield, after);
  b.SetInsertPoint(yield);
  CallHelper(Helper::kYield, {ctx});
  Suspend();
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

void FunctionEmitter::EmitTerminator(uint32_t block, const Instruction& i) {
  const ptx::Block& shape = facts.cfg.blocks[block];
  YieldOnBackEdge(block);
  if (i.opcode == Opcode::kBra) {
    llvm::BasicBlock* target = blocks_[shape.successors[0]];
    if (i.guarded() && shape.successors.size() > 1) {
      b.CreateCondBr(GuardOf(i), target, blocks_[shape.successors[1]]);
    } else {
      b.CreateBr(target);
    }
    return;
  }
  llvm::BasicBlock* next = i.guarded() ? blocks_[shape.successors.back()] : nullptr;
  if (next != nullptr) {
    llvm::BasicBlock* then = NewBlock("then");
    b.CreateCondBr(GuardOf(i), then, next);
    b.SetInsertPoint(then);
  }
  if (i.opcode != Opcode::kBrxIdx) return EmitEnd(i);
  const size_t targets = shape.successors.size() - (i.guarded() ? 1 : 0);
  llvm::BasicBlock* bad = NewBlock("bad");
  llvm::SwitchInst* branch = b.CreateSwitch(Read(i.operands[0], Type::kU32), bad, targets);
  for (size_t k = 0; k < targets; ++k) branch->addCase(b.getInt32(k), blocks_[shape.successors[k]]);
  b.SetInsertPoint(bad);
  CallHelper(Helper::kFault,
             {ctx, I32(static_cast<uint32_t>(FaultKind::kIllegalInstruction)), I64(0)});
  b.CreateUnreachable();
}

void FunctionEmitter::EmitEnd(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kTrap:
      CallHelper(Helper::kFault, {ctx, I32(static_cast<uint32_t>(FaultKind::kTrap)), I64(0)});
      b.CreateUnreachable();
      return;
    case Opcode::kExit:
      if (is_kernel) return Return();
      CallHelper(Helper::kExit, {ctx});
      b.CreateUnreachable();
      return;
    default:
      return Return();
  }
}

void FunctionEmitter::Return() {
  LeaveFrame();
  if (!is_kernel) {
    for (size_t k = 0; k < f.returns.size(); ++k) {
      const Variable& result = f.returns[k];
      if (result.reg == ptx::kNoIndex) continue;
      V value = ReadRegisterBits(result.reg, std::max(8u, ptx::BitsOf(result.type)));
      StoreTo(At(results_, return_layout_.offsets[k]), value, 1);
    }
  }
  if (coroutine == nullptr) {
    b.CreateRetVoid();
    return;
  }
  CallHelper(Helper::kFinish, {ctx});
  b.CreateBr(suspended_);
}

// LLVM splits the kernel at its waits (Coroutines in LLVM, switched-resume lowering): what lives
// across one goes to the thread's frame, which the scheduler provides and frees.
void FunctionEmitter::BeginCoroutine() {
  llvm::Constant* null = llvm::ConstantPointerNull::get(m.ptr());
  V id = b.CreateIntrinsic(llvm::Intrinsic::coro_id, {},
                           {I32(FrameAlignment(lanes())), null, null, null});
  V size = b.CreateIntrinsic(llvm::Intrinsic::coro_size, {b.getInt64Ty()}, {});
  V memory = CallHelper(Helper::kFrame, {ctx, size});
  coroutine = b.CreateIntrinsic(llvm::Intrinsic::coro_begin, {}, {id, memory});
  suspended_ = NewBlock("suspended");
  llvm::IRBuilder<> at_end(suspended_);
  at_end.CreateIntrinsic(llvm::Intrinsic::coro_end, {},
                         {coroutine, at_end.getFalse(), llvm::ConstantTokenNone::get(c)});
  at_end.CreateRetVoid();
}

// After a helper that lets the thread wait. On a fibre the helper itself has waited.
void FunctionEmitter::Suspend() {
  if (coroutine == nullptr) return;
  V state = b.CreateIntrinsic(llvm::Intrinsic::coro_suspend, {},
                              {llvm::ConstantTokenNone::get(c), b.getFalse()});
  llvm::BasicBlock* resumed = NewBlock("resumed");
  llvm::SwitchInst* branch = b.CreateSwitch(state, suspended_, 2);
  branch->addCase(b.getInt8(0), resumed);
  branch->addCase(b.getInt8(1), suspended_);  // destroyed: never
  b.SetInsertPoint(resumed);
}

}  // namespace smolvm::emulation::codegen
