// Calls. Every function has one native signature, (context, arguments, results), the last two by
// address and laid out as the PTX signature says, so that an indirect call needs no more than the
// right layout.
#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Instruction;
using ptx::Opcode;
using ptx::SymbolKind;
using ptx::Variable;

namespace {

// Parameters beyond this are refused: they would sit on the machine's stack. PTX ISA 9.0, 5.1.6.1
// has the same limit.
constexpr uint64_t kMaxCallBytes = 32764;

uint64_t AlignmentOf(const Variable& variable) {
  return variable.alignment == 0 ? 1 : variable.alignment;
}
uint64_t SizeOf(const Variable& variable) {
  return variable.space == ptx::StateSpace::kReg
             ? std::max<uint64_t>(1, ptx::BytesOf(variable.type))
             : variable.bytes;
}

}  // namespace

ParamLayout LayOut(const std::vector<Variable>& variables) {
  ParamLayout layout;
  for (const Variable& variable : variables) {
    const uint64_t alignment = std::min<uint64_t>(AlignmentOf(variable), 16);
    layout.bytes = (layout.bytes + alignment - 1) / alignment * alignment;
    layout.offsets.push_back(layout.bytes);
    layout.bytes += SizeOf(variable);
  }
  return layout;
}

uint64_t SignatureOf(const std::vector<Variable>& returns, const std::vector<Variable>& params) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  const auto mix = [&](uint64_t value) {
    for (int k = 0; k < 8; ++k) hash = (hash ^ ((value >> (8 * k)) & 0xff)) * 0x100000001b3;
  };
  const auto mix_list = [&](const std::vector<Variable>& list) {
    mix(list.size());
    for (const Variable& variable : list) {
      mix(SizeOf(variable));
      mix(std::min<uint64_t>(AlignmentOf(variable), 16));
    }
  };
  mix_list(returns);
  mix_list(params);
  return hash;
}

V FunctionEmitter::CallParamPointer(const Instruction& i, const Operand& operand,
                                    const Variable** variable) {
  if (operand.kind != Operand::Kind::kSymbol) return nullptr;
  *variable = &ptx::VariableOf(m.source(), f, operand.symbol);
  Operand address;
  address.kind = Operand::Kind::kAddress;
  address.base = Operand::AddressBase::kSymbol;
  address.symbol = operand.symbol;
  address.offset = operand.offset;
  return ParamPointer(i, address, 1);
}

V FunctionEmitter::ArgumentValue(const Instruction& i, const Operand& operand, Type type) {
  const Variable* variable = nullptr;
  if (V pointer = CallParamPointer(i, operand, &variable)) {
    return b.CreateAlignedLoad(Int(std::max(8u, ptx::BitsOf(type))), pointer, llvm::Align(1));
  }
  return ReadBits(operand, type);
}

// What a handle points to, or a fault.
V FunctionEmitter::CheckedTarget(const Instruction& i, V handle, uint64_t signature) {
  const size_t count = m.CallTableSize();
  if (count == 0) {
    Refuse(i, "no function's address is taken");
    return llvm::PoisonValue::get(m.ptr());
  }
  V offset = b.CreateSub(handle, I64(kFunctionHandleBase));
  V bad = b.CreateOr(b.CreateICmpUGE(offset, I64(count * kFunctionHandleStride)),
                     b.CreateICmpNE(b.CreateAnd(offset, I64(kFunctionHandleStride - 1)), I64(0)));
  RaiseIf(bad, FaultKind::kIllegalCall);
  // The table's entries are as large as the stride between handles.
  V entry = b.CreateGEP(b.getInt8Ty(), m.CallTable(), offset);
  V expected = b.CreateLoad(b.getInt64Ty(), b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), entry, 8));
  RaiseIf(b.CreateICmpNE(expected, I64(signature)), FaultKind::kIllegalCall);
  return b.CreateLoad(m.ptr(), entry);
}

void FunctionEmitter::EmitCall(const Instruction& i) {
  const ptx::Call& call = f.calls[i.call];
  const std::vector<Variable>* params;
  const std::vector<Variable>* returns;
  const bool direct = call.callee.kind == Operand::Kind::kSymbol;
  if (direct) {
    const ptx::Function& callee = m.source().functions[call.callee.symbol.index];
    const Builtin builtin = callee.has_body ? Builtin::kNone : BuiltinNamed(callee.name);
    if (builtin != Builtin::kNone) return EmitBuiltin(i, builtin, call);
    params = &callee.params;
    returns = &callee.returns;
  } else if (call.prototype != ptx::kNoIndex) {
    params = &f.prototypes[call.prototype].params;
    returns = &f.prototypes[call.prototype].returns;
  } else if (call.targets != ptx::kNoIndex && !f.call_targets[call.targets].functions.empty()) {
    const ptx::Function& first = m.source().functions[f.call_targets[call.targets].functions[0]];
    params = &first.params;
    returns = &first.returns;
  } else {
    return Refuse(i);
  }
  const ParamLayout in = LayOut(*params);
  const ParamLayout out = LayOut(*returns);
  if (in.bytes > kMaxCallBytes || out.bytes > kMaxCallBytes)
    return Refuse(i, "too many parameter bytes");
  V handle = direct ? nullptr : Resize(ReadBits(call.callee, Type::kB64), 64, false);
  const auto block = [&](uint64_t bytes) {
    llvm::IRBuilder<> entry(&fn->getEntryBlock(), fn->getEntryBlock().begin());
    auto* alloca =
        entry.CreateAlloca(llvm::ArrayType::get(b.getInt8Ty(), std::max<uint64_t>(bytes, 1)));
    alloca->setAlignment(llvm::Align(16));
    return alloca;
  };
  V arguments = block(in.bytes);
  V results = block(out.bytes);
  // A callee may leave them out.
  if (out.bytes != 0) b.CreateMemSet(results, b.getInt8(0), out.bytes, llvm::Align(16));
  const auto at = [&](V base, uint64_t offset) {
    return b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), base, offset);
  };
  for (size_t k = 0; k < params->size(); ++k) {
    const Variable* source = nullptr;
    const Operand& argument = call.arguments[k];
    if (V pointer = CallParamPointer(i, argument, &source)) {
      const uint64_t bytes = std::min(SizeOf((*params)[k]), SizeOf(*source));
      b.CreateMemCpy(at(arguments, in.offsets[k]), llvm::Align(1), pointer, llvm::Align(1), bytes);
    } else {
      const Type type = (*params)[k].type;
      b.CreateAlignedStore(ReadBits(argument, type), at(arguments, in.offsets[k]), llvm::Align(1));
    }
  }
  if (direct) {
    b.CreateCall(m.FunctionAt(call.callee.symbol.index), {ctx, arguments, results});
  } else {
    V target = CheckedTarget(i, handle, SignatureOf(*returns, *params));
    b.CreateCall(llvm::FunctionType::get(b.getVoidTy(), {m.ptr(), m.ptr(), m.ptr()}, false), target,
                 {ctx, arguments, results});
  }
  for (size_t k = 0; k < returns->size() && k < call.returns.size(); ++k) {
    const Variable* destination = nullptr;
    const Operand& result = call.returns[k];
    if (V pointer = CallParamPointer(i, result, &destination)) {
      const uint64_t bytes = std::min(SizeOf((*returns)[k]), SizeOf(*destination));
      b.CreateMemCpy(pointer, llvm::Align(1), at(results, out.offsets[k]), llvm::Align(1), bytes);
    } else if (result.is_register()) {
      const Type type = (*returns)[k].type;
      V bits = b.CreateAlignedLoad(Int(std::max(8u, ptx::BitsOf(type))),
                                   at(results, out.offsets[k]), llvm::Align(1));
      WriteBits(result, bits, type);
    }
  }
}

void FunctionEmitter::EmitBuiltin(const Instruction& i, Builtin builtin, const ptx::Call& call) {
  const size_t wanted[] = {0, 2, 5, 1, 1};
  if (call.arguments.size() != wanted[static_cast<size_t>(builtin)])
    return Refuse(i, "arguments of a system call");
  const auto argument = [&](size_t k, Type type = Type::kB64) {
    return ArgumentValue(i, call.arguments[k], type);
  };
  V result = nullptr;
  Type result_type = Type::kB64;
  switch (builtin) {
    case Builtin::kVprintf:
      result = CallHelper(Helper::kPrintf, {ctx, argument(0), argument(1)});
      result_type = Type::kB32;
      break;
    case Builtin::kAssertFail:
      CallHelper(Helper::kAssertFail, {ctx, argument(0), argument(1), argument(2, Type::kB32),
                                       argument(3), argument(4)});
      return;
    case Builtin::kMalloc:
      result = CallHelper(Helper::kMalloc, {ctx, argument(0)});
      break;
    case Builtin::kFree:
      CallHelper(Helper::kFree, {ctx, argument(0)});
      return;
    case Builtin::kNone:
      return;
  }
  if (call.returns.empty()) return;
  const Variable* destination = nullptr;
  if (V pointer = CallParamPointer(i, call.returns[0], &destination)) {
    if (SizeOf(*destination) < ptx::BytesOf(result_type))
      return Refuse(i, "result of a system call");
    b.CreateAlignedStore(result, pointer, llvm::Align(1));
  } else {
    WriteBits(call.returns[0], result, result_type);
  }
}

// alloca, stacksave, stackrestore: the thread's local window grows upwards from its frames.
void FunctionEmitter::EmitStack(const Instruction& i) {
  V slot = b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), ctx, offsetof(ThreadContext, local_used));
  V used = b.CreateLoad(b.getInt64Ty(), slot);
  if (i.opcode == Opcode::kStacksave)
    return WriteBits(i.operands[0], Resize(used, ptx::BitsOf(i.type()), false), i.type());
  if (i.opcode == Opcode::kStackrestore) {
    V wanted = Resize(ReadBits(i.operands[0], i.type()), 64, false);
    RaiseIf(b.CreateICmpUGT(wanted, local_bytes), FaultKind::kStackOverflow);
    b.CreateStore(wanted, slot);
    return;
  }
  uint64_t alignment = 16;
  if (i.operands.size() > 2 && i.operands[2].is_immediate())
    alignment = std::max<uint64_t>(16, i.operands[2].bits);
  if ((alignment & (alignment - 1)) != 0 || alignment > 4096) return Refuse(i);
  V begin = b.CreateAnd(b.CreateAdd(used, I64(alignment - 1)), I64(~(alignment - 1)));
  V size = Resize(ReadBits(i.operands[1], i.type()), 64, false);
  V room = Intrinsic(llvm::Intrinsic::usub_sat, {local_bytes, begin});
  RaiseIf(b.CreateICmpUGT(size, room), FaultKind::kStackOverflow);
  b.CreateStore(b.CreateAdd(begin, size), slot);
  WriteBits(i.operands[0], Resize(begin, ptx::BitsOf(i.type()), false), i.type());
}

}  // namespace smolvm::emulation::codegen
