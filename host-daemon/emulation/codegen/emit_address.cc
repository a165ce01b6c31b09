// Addresses as numbers: state spaces and symbols. Global, const and generic addresses are the
// worker's own; shared, local and parameter addresses are offsets in a window.
#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::StateSpace;
using ptx::SymbolKind;
using ptx::Variable;

namespace {
bool IsShared(StateSpace space) {
  return space == StateSpace::kShared || space == StateSpace::kSharedCluster;
}
}  // namespace

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

V FunctionEmitter::GenericOf(V address, StateSpace space) {
  if (IsShared(space)) return b.CreateAdd(shared_base, address);
  if (space == StateSpace::kLocal) return b.CreateAdd(local_base, address);
  if (space == StateSpace::kParam) return b.CreateAdd(params_base, address);
  return address;
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
