// Calls. Every function has one native signature, (context, arguments, results), the last two by
// address in the caller's frame and laid out as the PTX signature says, so that an indirect call
// needs no more than the right layout.
#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Variable;

// The variable that an operand of a call names; null when it names none. Refuses one that has fewer
// than `bytes`.
Checked FunctionEmitter::CallParam(const Instruction& i, const Operand& operand, uint64_t bytes,
                                   Use use) {
  if (operand.kind != Operand::Kind::kSymbol) return {};
  Operand address = operand;
  address.kind = Operand::Kind::kAddress;
  address.base = Operand::AddressBase::kSymbol;
  return ParamPointer(i, address, {ptx::StateSpace::kParam, static_cast<unsigned>(bytes), use});
}

V FunctionEmitter::ArgumentValue(const Instruction& i, const Operand& operand, Type type) {
  if (const Checked from = CallParam(i, operand, ptx::BytesOf(type), Use::kRead))
    return LoadFrom(from, Int(ptx::BitsOf(type)), 1);
  return ReadBits(operand, type);
}

void FunctionEmitter::EmitCall(const Instruction& i) {
  const ptx::Call& call = f.calls[i.call];
  const bool direct = call.callee.kind == Operand::Kind::kSymbol;
  if (direct) {
    const ptx::Function& callee = m.source().functions[call.callee.symbol.index];
    const Builtin builtin = callee.has_body ? Builtin::kNone : BuiltinNamed(callee.name);
    if (builtin != Builtin::kNone) return EmitBuiltin(i, builtin, call);
  }
  const Signature signature = SignatureOf(m.source(), f, call);
  if (!signature || call.arguments.size() != signature.params->size()) return Refuse(i);
  const ParamLayout in = LayOut(*signature.params);
  const ParamLayout out = LayOut(*signature.returns);
  V handle = direct ? nullptr : Resize(ReadBits(call.callee, Type::kB64), 64, false);
  const Checked results = InFrame(facts.call_offset, out.bytes);
  const Checked arguments = InFrame(facts.call_offset + CallBlockBytes(out), in.bytes);
  // A callee may leave them out.
  Zero(results, out.bytes);
  for (size_t k = 0; k < signature.params->size(); ++k) {
    const Variable& param = (*signature.params)[k];
    const Operand& argument = call.arguments[k];
    const Checked to = At(arguments, in.offsets[k]);
    const uint64_t bytes = CommonBytes(param, argument);
    if (const Checked from = CallParam(i, argument, bytes, Use::kRead)) {
      Copy(to, from, bytes);
    } else {
      StoreTo(to, ReadBits(argument, param.type), 1);
    }
  }
  V target = direct ? m.FunctionAt(call.callee.symbol.index) : CheckedTarget(i, handle, signature);
  b.raw().CreateCall(llvm::FunctionType::get(b.getVoidTy(), {m.ptr(), m.ptr(), m.ptr()}, false),
                     target, {ctx, arguments.pointer(), results.pointer()});
  for (size_t k = 0; k < signature.returns->size() && k < call.returns.size(); ++k) {
    const Variable& returned = (*signature.returns)[k];
    const Operand& result = call.returns[k];
    const Checked from = At(results, out.offsets[k]);
    const uint64_t bytes = CommonBytes(returned, result);
    if (const Checked to = CallParam(i, result, bytes, Use::kWrite)) {
      Copy(to, from, bytes);
    } else if (result.is_register()) {
      const unsigned bits = std::max(8u, ptx::BitsOf(returned.type));
      WriteBits(result, LoadFrom(from, Int(bits), 1), returned.type);
    }
  }
}

// What a parameter and the variable passed for it both have.
uint64_t FunctionEmitter::CommonBytes(const Variable& param, const Operand& operand) const {
  const uint64_t bytes = SizeOf(param);
  if (operand.kind != Operand::Kind::kSymbol) return bytes;
  return std::min(bytes, SizeOf(ptx::VariableOf(m.source(), f, operand.symbol)));
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
  const uint64_t bytes = ptx::BytesOf(result_type);
  if (const Checked to = CallParam(i, call.returns[0], bytes, Use::kWrite)) {
    StoreTo(to, result, 1);
  } else {
    WriteBits(call.returns[0], result, result_type);
  }
}

// alloca, stacksave, stackrestore: the thread's local window grows upwards from its frames.
void FunctionEmitter::EmitStack(const Instruction& i) {
  V used = LoadLocalUsed();
  if (i.opcode == Opcode::kStacksave)
    return WriteBits(i.operands[0], Resize(used, ptx::BitsOf(i.type()), false), i.type());
  if (i.opcode == Opcode::kStackrestore) {
    V wanted = Resize(ReadBits(i.operands[0], i.type()), 64, false);
    RaiseIf(b.CreateICmpUGT(wanted, local_bytes), FaultKind::kStackOverflow);
    StoreLocalUsed(wanted);
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
  StoreLocalUsed(b.CreateAdd(begin, size));
  WriteBits(i.operands[0], Resize(begin, ptx::BitsOf(i.type()), false), i.type());
}

}  // namespace smolvm::emulation::codegen
