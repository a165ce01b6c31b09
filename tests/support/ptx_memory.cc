#include <algorithm>
#include <cstring>

#include "tests/support/ptx_evaluators.h"
#include "tests/support/ptx_float.h"
#include "tests/support/ptx_machine.h"

namespace smolvm::ptx_interpreter {

using emulation::ptx::Function;
using emulation::ptx::Opcode;
using emulation::ptx::Reduction;
using emulation::ptx::Symbol;
using emulation::ptx::SymbolKind;
using emulation::ptx::Variable;

namespace {

uint64_t Place(const Variable& variable, uint64_t* end) {
  const uint64_t at = (*end + variable.alignment - 1) / variable.alignment * variable.alignment;
  *end = at + variable.bytes;
  return at;
}

}  // namespace

void Block::LayOut() {
  uint64_t shared = 0;
  for (const Variable& variable : module_.variables) {
    if (variable.space == StateSpace::kShared && !variable.is_unsized) {
      offsets_[&variable] = Place(variable, &shared);
    }
  }
  for (const Function& function : module_.functions) {
    uint64_t local = 0;
    uint64_t param = function.param_bytes;
    for (const Variable& variable : function.params) offsets_[&variable] = variable.offset;
    for (const Variable& variable : function.returns) offsets_[&variable] = Place(variable, &param);
    for (const Variable& variable : function.variables) {
      uint64_t* end = variable.space == StateSpace::kShared  ? &shared
                      : variable.space == StateSpace::kParam ? &param
                                                             : &local;
      offsets_[&variable] = Place(variable, end);
    }
    sizes_[&function] = {local, param};
  }
  constexpr uint64_t kAlignment = 16;
  dynamic_shared_ = (shared + kAlignment - 1) / kAlignment * kAlignment;
  shared_.resize(dynamic_shared_ + launch_.dynamic_shared_bytes);
}

// In the variable's own state space.
uint64_t Block::AddressOf(Thread* t, const Symbol& symbol) {
  if (symbol.kind == SymbolKind::kFunction) return kFunctionBase + symbol.index;
  const Function& function = *t->frame().function;
  const Variable& variable = VariableOf(module_, function, symbol);
  switch (variable.space) {
    case StateSpace::kShared:
      return variable.is_unsized ? dynamic_shared_ : offsets_.at(&variable);
    case StateSpace::kLocal:
      return t->frame().local_base + offsets_.at(&variable);
    case StateSpace::kParam:
      return t->frame().param_base + offsets_.at(&variable);
    default:
      return reinterpret_cast<uint64_t>(interpreter_->variable(symbol.index));
  }
}

uint64_t Block::Address(Thread* t, const Operand& o) {
  const auto offset = static_cast<uint64_t>(o.offset);
  switch (o.base) {
    case Operand::AddressBase::kRegister:
      return t->frame().registers[o.index] + offset;
    case Operand::AddressBase::kSymbol:
      return AddressOf(t, o.symbol) + offset;
    default:
      return offset;
  }
}

std::byte* Block::Resolve(Thread* t, StateSpace space, uint64_t address, size_t bytes) {
  if (space == StateSpace::kNone) {
    const uint64_t window = address >> 60 << 60;
    if (window == kSharedWindow) return Resolve(t, StateSpace::kShared, address - window, bytes);
    if (window == kLocalWindow) return Resolve(t, StateSpace::kLocal, address - window, bytes);
    if (window == kParamWindow) return Resolve(t, StateSpace::kParam, address - window, bytes);
    space = StateSpace::kGlobal;
  }
  std::vector<std::byte>* memory = nullptr;
  if (space == StateSpace::kShared) memory = &shared_;
  if (space == StateSpace::kLocal) memory = &t->local;
  if (space == StateSpace::kParam) memory = &t->param;
  if (memory != nullptr) {
    if (address > memory->size() || bytes > memory->size() - address) {
      throw Failure("address outside its state space");
    }
    return memory->data() + address;
  }
  if (!interpreter_->MayTouch(address, bytes)) throw Failure("illegal global address");
  return reinterpret_cast<std::byte*>(address);
}

uint64_t Block::LoadBits(Thread* t, StateSpace space, uint64_t address, Type type) {
  uint64_t bits = 0;
  if (BytesOf(type) > 8) throw Failure("not covered: 128 bits");
  memcpy(&bits, Resolve(t, space, address, BytesOf(type)), BytesOf(type));
  return bits;
}

void Block::StoreBits(Thread* t, StateSpace space, uint64_t address, Type type, uint64_t bits) {
  if (BytesOf(type) > 8) throw Failure("not covered: 128 bits");
  memcpy(Resolve(t, space, address, BytesOf(type)), &bits, BytesOf(type));
}

void Block::CheckAlignment(uint64_t address, size_t bytes) {
  if (address % bytes != 0) throw Failure("misaligned address");
}

// False: not an instruction on memory.
bool Block::Memory(Thread* t, const Instruction& i) {
  const StateSpace space = i.modifiers.space;
  const size_t step = BytesOf(i.type());
  switch (i.opcode) {
    case Opcode::kAtom:
    case Opcode::kRed:
      Atomic(t, i);
      return true;
    case Opcode::kLd:
    case Opcode::kLdu: {
      const uint64_t address = Address(t, i.operands[1]);
      CheckAlignment(address, step * i.modifiers.vector);
      const Operand& d = i.operands[0];
      if (d.kind != Operand::Kind::kVector) {
        Write(t, d, i.type(), LoadBits(t, space, address, i.type()));
        return true;
      }
      for (uint32_t n = 0; n < d.count; ++n) {
        Write(t, i.ElementsOf(d)[n], i.type(), LoadBits(t, space, address + n * step, i.type()));
      }
      return true;
    }
    case Opcode::kSt: {
      const uint64_t address = Address(t, i.operands[0]);
      CheckAlignment(address, step * i.modifiers.vector);
      const Operand& s = i.operands[1];
      if (s.kind != Operand::Kind::kVector) {
        StoreBits(t, space, address, i.type(), Read(t, i, s, i.type()));
        return true;
      }
      for (uint32_t n = 0; n < s.count; ++n) {
        const uint64_t bits = Read(t, i, i.ElementsOf(s)[n], i.type());
        StoreBits(t, space, address + n * step, i.type(), bits);
      }
      return true;
    }
    default:
      return false;
  }
}

namespace {

uint64_t AddTo(Type type, uint64_t a, uint64_t b) {
  if (type == Type::kF16x2 || type == Type::kBf16x2) {
    const Type lane = type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
    const auto rn = Rounding::kRn;
    return Add(lane, a & 0xFFFF, b & 0xFFFF, rn) | (Add(lane, a >> 16, b >> 16, rn) << 16);
  }
  return IsFloat(type) ? Add(type, a, b, Rounding::kRn) : Truncate(a + b, BitsOf(type));
}

bool IsLess(Type type, uint64_t a, uint64_t b) {
  return IsSigned(type) ? SignExtend(a, BitsOf(type)) < SignExtend(b, BitsOf(type)) : a < b;
}

// PTX ISA 9.0, 9.7.13.5.
uint64_t Combine(const Instruction& i, uint64_t old, uint64_t b, uint64_t c) {
  switch (i.modifiers.reduction) {
    case Reduction::kAnd:
      return old & b;
    case Reduction::kOr:
      return old | b;
    case Reduction::kXor:
      return old ^ b;
    case Reduction::kAdd:
      return AddTo(i.type(), old, b);
    case Reduction::kInc:
      return old >= b ? 0 : old + 1;
    case Reduction::kDec:
      return old == 0 || old > b ? b : old - 1;
    case Reduction::kMin:
      return IsLess(i.type(), b, old) ? b : old;
    case Reduction::kMax:
      return IsLess(i.type(), old, b) ? b : old;
    case Reduction::kCas:
      return old == b ? c : old;
    case Reduction::kExch:
      return b;
    default:
      throw Failure("not covered");
  }
}

}  // namespace

void Block::Atomic(Thread* t, const Instruction& i) {
  if (i.modifiers.vector != 1) throw Failure("not covered: vectors");
  const bool returns = i.opcode == Opcode::kAtom;
  const size_t first = returns ? 1 : 0;
  const StateSpace space = i.modifiers.space;
  const uint64_t address = Address(t, i.operands[first]);
  CheckAlignment(address, BytesOf(i.type()));
  const uint64_t old = LoadBits(t, space, address, i.type());
  const uint64_t b = Read(t, i, i.operands[first + 1], i.type());
  const bool has_c = i.modifiers.reduction == Reduction::kCas;
  const uint64_t c = has_c ? Read(t, i, i.operands[first + 2], i.type()) : 0;
  StoreBits(t, space, address, i.type(), Combine(i, old, b, c));
  if (returns) Write(t, i.operands[0], i.type(), old);
}

void Block::ConvertAddress(Thread* t, const Instruction& i) {
  uint64_t window = 0;
  if (i.modifiers.space == StateSpace::kShared) window = kSharedWindow;
  if (i.modifiers.space == StateSpace::kLocal) window = kLocalWindow;
  if (i.modifiers.space == StateSpace::kParam) window = kParamWindow;
  const uint64_t address = Read(t, i, i.operands[1], i.type());
  Write(t, i.operands[0], i.type(), i.modifiers.to ? address - window : address + window);
}

void Block::AskSpace(Thread* t, const Instruction& i) {
  const uint64_t window = Read(t, i, i.operands[1], Type::kU64) >> 60 << 60;
  bool holds = window == 0;
  if (i.modifiers.space == StateSpace::kShared) holds = window == kSharedWindow;
  if (i.modifiers.space == StateSpace::kLocal) holds = window == kLocalWindow;
  if (i.modifiers.space == StateSpace::kParam) holds = window == kParamWindow;
  if (i.modifiers.space == StateSpace::kConst) throw Failure("not covered: isspacep.const");
  Write(t, i.operands[0], Type::kPred, holds ? 1 : 0);
}

}  // namespace smolvm::ptx_interpreter
