// Addresses: state spaces, and the checks that keep a kernel inside its memory.
//
// Global, const and generic addresses are the worker's own. Shared, local and parameter addresses
// are offsets in a window. One comparison checks both the range and the alignment: the offset is
// rotated right by log2(size), so that misaligned low bits become high ones.
//
// Windows lie behind device memory, beside those of other blocks and kernels. A generic address may
// be in device memory or in one of the thread's own windows; a global one, in device memory only.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/MDBuilder.h>

#include <bit>

#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation::codegen {

using ptx::StateSpace;
using ptx::SymbolKind;
using ptx::Variable;

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
  b.CreateCall(m.access_fault(), {ctx, address, I64(bytes)});
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

V FunctionEmitter::VariableAddress(uint32_t index) {
  V table = LoadContext(b, block_ctx, offsetof(BlockContext, variables), m.ptr(), true);
  return LoadContext(b, table, index * sizeof(uintptr_t), b.getInt64Ty(), true);
}

V FunctionEmitter::SymbolAddress(const Instruction& i, ptx::Symbol symbol, int64_t offset) {
  const uint64_t plus = static_cast<uint64_t>(offset);
  switch (symbol.kind) {
    case SymbolKind::kVariable: {
      const Variable& variable = m.source().variables[symbol.index];
      if (IsShared(variable.space)) return I64(m.facts().shared_variables.at(symbol.index) + plus);
      if (variable.space == StateSpace::kGlobal || variable.space == StateSpace::kConst) {
        return b.CreateAdd(VariableAddress(symbol.index), I64(plus));
      }
      break;
    }
    case SymbolKind::kLocal: {
      const Variable& variable = f.variables[symbol.index];
      if (IsShared(variable.space)) return I64(facts.shared_offsets[symbol.index] + plus);
      if (variable.space == StateSpace::kLocal) {
        return b.CreateAdd(frame, I64(facts.local_offsets[symbol.index] + plus));
      }
      break;
    }
    case SymbolKind::kParam:
      if (is_kernel) return I64(f.params[symbol.index].offset + plus);
      if (facts.param_offsets[symbol.index] == kNotInFrame) break;
      return b.CreateAdd(frame, I64(facts.param_offsets[symbol.index] + plus));
    case SymbolKind::kReturn:
      break;
    case SymbolKind::kFunction: {
      const uint64_t handle = m.HandleOf(symbol.index);
      if (handle != 0) return I64(handle);
      break;
    }
  }
  Refuse(i, "address of this symbol");
  return I64(0);
}

V FunctionEmitter::AddressValue(const Operand& address) {
  switch (address.base) {
    case Operand::AddressBase::kAbsolute:
      return I64(static_cast<uint64_t>(address.offset) + address.bits);
    case Operand::AddressBase::kRegister: {
      V base = ReadRegisterBits(address.index, ptx::BitsOf(f.registers[address.index].type));
      // 32-bit addresses wrap in 32 bits.
      if (base->getType()->getScalarType()->isIntegerTy(32))
        base = b.CreateAdd(base, I32(static_cast<uint64_t>(address.offset)));
      base = Resize(base, 64, false);
      if (ptx::BitsOf(f.registers[address.index].type) == 32) return base;
      return b.CreateAdd(base, I64(static_cast<uint64_t>(address.offset)));
    }
    case Operand::AddressBase::kSymbol:
      return nullptr;
  }
  return nullptr;
}

// A symbol with a constant offset that stays inside it needs no check. `*space` becomes the
// symbol's own, so that a generic access to a shared variable goes to the window.
bool FunctionEmitter::IsKnownGood(const Operand& address, Access access, StateSpace* space) {
  if (address.base != Operand::AddressBase::kSymbol || address.symbol.kind == SymbolKind::kFunction)
    return false;
  const Variable& variable = ptx::VariableOf(m.source(), f, address.symbol);
  if (*space == StateSpace::kNone) *space = variable.space;
  if (variable.is_unsized || address.offset < 0) return false;
  const auto offset = static_cast<uint64_t>(address.offset);
  if (offset % access.bytes != 0 || variable.alignment % access.bytes != 0) return false;
  return offset <= variable.bytes && access.bytes <= variable.bytes - offset;
}

V FunctionEmitter::Pointer(const Instruction& i, const Operand& address, Access access) {
  const bool known = IsKnownGood(address, access, &access.space);
  if (access.space == StateSpace::kParam && !is_kernel)
    return ParamPointer(i, address, access.bytes);
  V value = address.base == Operand::AddressBase::kSymbol
                ? SymbolAddress(i, address.symbol, address.offset)
                : AddressValue(address);
  if (!known) return PointerAt(value, access);
  return b.CreateIntToPtr(GenericOf(value, access.space), m.ptr());
}

V FunctionEmitter::GenericOf(V address, StateSpace space) {
  if (IsShared(space)) return b.CreateAdd(shared_base, address);
  if (space == StateSpace::kLocal) return b.CreateAdd(local_base, address);
  if (space == StateSpace::kParam) return b.CreateAdd(params_base, address);
  return address;
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

V FunctionEmitter::PointerAt(V address, Access access) {
  const unsigned log2 = std::countr_zero(access.bytes);
  V generic = GenericOf(address, access.space);
  const auto [offset, bytes] = BoundsOf(address, access.space);
  V bad = Outside(offset, bytes, log2);
  if (access.space == StateSpace::kNone) {
    llvm::BasicBlock* windows = NewBlock("windows");
    llvm::BasicBlock* good = NewBlock("good");
    b.CreateCondBr(bad, windows, good);
    b.SetInsertPoint(windows);
    FaultIf(OutsideWindows(address, log2, access.writes), generic, access.bytes);
    b.CreateBr(good);
    b.SetInsertPoint(good);
    return b.CreateIntToPtr(generic, m.ptr());
  }
  FaultIf(bad, generic, access.bytes);
  return b.CreateIntToPtr(generic, m.ptr());
}

// A parameter of a function whose address is taken.
V FunctionEmitter::ParamInFrame(uint32_t index) {
  V address = b.CreateAdd(frame, I64(facts.param_offsets[index]));
  return b.CreateIntToPtr(GenericOf(address, StateSpace::kLocal), m.ptr());
}

// .param: of a kernel, its block in the arena; of a function, what the caller passed; of a call,
// the caller's variable.
V FunctionEmitter::ParamPointer(const Instruction& i, const Operand& address, unsigned bytes) {
  if (address.base != Operand::AddressBase::kSymbol) {
    if (is_kernel) return PointerAt(AddressValue(address), {StateSpace::kParam, bytes});
    Refuse(i, "parameter addressed by a register");
    return llvm::PoisonValue::get(m.ptr());
  }
  const Variable& variable = ptx::VariableOf(m.source(), f, address.symbol);
  const auto offset = static_cast<uint64_t>(address.offset);
  if (address.offset < 0 || offset > variable.bytes || bytes > variable.bytes - offset) {
    Refuse(i, "access outside a parameter");
    return llvm::PoisonValue::get(m.ptr());
  }
  const auto at = [&](V base, uint64_t where) {
    return b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), base, where);
  };
  switch (address.symbol.kind) {
    case SymbolKind::kParam:
      if (is_kernel) return at(b.CreateIntToPtr(params_base, m.ptr()), variable.offset + offset);
      if (facts.param_offsets[address.symbol.index] != kNotInFrame)
        return at(ParamInFrame(address.symbol.index), offset);
      return at(args, param_layout_.offsets[address.symbol.index] + offset);
    case SymbolKind::kReturn:
      if (is_kernel) break;
      return at(rets, return_layout_.offsets[address.symbol.index] + offset);
    case SymbolKind::kLocal:
      if (V base = param_variables_[address.symbol.index]) {
        if (lane_ == nullptr) return at(base, offset);
        V before = b.CreateMul(b.CreateZExt(lane_, b.getInt64Ty()), I64(variable.bytes));
        return at(b.CreateGEP(b.getInt8Ty(), base, before), offset);
      }
      break;
    default:
      break;
  }
  Refuse(i, "parameter access");
  return llvm::PoisonValue::get(m.ptr());
}

// cvta.space: window offset to generic address; cvta.to.space: back.
void FunctionEmitter::EmitCvta(const Instruction& i) {
  const Type type = i.type();
  const Operand& source = i.operands[1];
  StateSpace space = i.modifiers.space;
  V address;
  if (source.kind == Operand::Kind::kSymbol) {
    address = SymbolAddress(i, source.symbol, source.offset);
  } else {
    address = Resize(ReadBits(source, type), 64, false);
  }
  if (space == StateSpace::kParam && !is_kernel) return Refuse(i, "parameter of a function");
  if (i.modifiers.to) {
    V base = GenericOf(I64(0), space);
    address = b.CreateSub(address, base);
  } else {
    address = GenericOf(address, space);
  }
  WriteBits(i.operands[0], Resize(address, ptx::BitsOf(type), false), type);
}

void FunctionEmitter::EmitIsspacep(const Instruction& i) {
  const Operand& source = i.operands[1];
  V address = source.kind == Operand::Kind::kSymbol
                  ? SymbolAddress(i, source.symbol, source.offset)
                  : Resize(ReadBits(source, Type::kU64), 64, false);
  const auto within = [&](V base, V bytes) {
    return b.CreateICmpULT(b.CreateSub(address, base), bytes);
  };
  V param_bytes =
      LoadContext(b, block_ctx, offsetof(BlockContext, param_bytes), b.getInt64Ty(), true);
  V shared = within(shared_base, shared_bytes);
  V local = within(local_base, local_bytes);
  V param = within(params_base, param_bytes);
  V result;
  switch (i.modifiers.space) {
    case StateSpace::kShared:
    case StateSpace::kSharedCluster:
      result = shared;
      break;
    case StateSpace::kLocal:
      result = local;
      break;
    case StateSpace::kParam:
      result = param;
      break;
    case StateSpace::kConst: {
      // Inside one of the module's .const variables.
      result = b.getFalse();
      for (size_t k = 0; k < m.source().variables.size(); ++k) {
        const Variable& variable = m.source().variables[k];
        if (variable.space != StateSpace::kConst) continue;
        result = b.CreateOr(result,
                            within(VariableAddress(static_cast<uint32_t>(k)), I64(variable.bytes)));
      }
      break;
    }
    default:
      result = b.CreateNot(b.CreateOr(shared, b.CreateOr(local, param)));
      break;
  }
  WritePredicate(i.operands[0], result);
}

// A cluster is one block here, so every shared address that may be mapped is the block's own.
void FunctionEmitter::EmitMapa(const Instruction& i) {
  const Operand& source = i.operands[1];
  V address =
      source.kind == Operand::Kind::kSymbol
          ? Resize(SymbolAddress(i, source.symbol, source.offset), ptx::BitsOf(i.type()), false)
          : ReadBits(source, i.type());
  WriteBits(i.operands[0], i.opcode == ptx::Opcode::kGetctarank ? I32(0) : address,
            i.opcode == ptx::Opcode::kGetctarank ? Type::kU32 : i.type());
}

}  // namespace smolvm::emulation::codegen
