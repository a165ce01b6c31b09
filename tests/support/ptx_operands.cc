#include <cstring>

#include "host-daemon/emulation/ptx/shape.h"
#include "tests/support/ptx_machine.h"

namespace smolvm::ptx_interpreter {

using emulation::ptx::Opcode;
using emulation::ptx::Slot;
using emulation::ptx::Special;
using emulation::ptx::SymbolKind;

namespace {

Type SlotType(const Instruction& i, Slot slot) {
  switch (slot) {
    case Slot::kSource:
    case Slot::kLooseSource:
      return i.source_type();
    case Slot::kWide:
      if (BitsOf(i.type()) == 16) return IsSigned(i.type()) ? Type::kS32 : Type::kU32;
      return IsSigned(i.type()) ? Type::kS64 : Type::kU64;
    case Slot::kPredicate:
      return Type::kPred;
    case Slot::kWord:
    case Slot::kConstant:
      return Type::kU32;
    default:
      return i.type();
  }
}

}  // namespace

uint64_t Block::ReadSpecial(Thread* t, const Operand& o) {
  const uint32_t c = o.component;
  const auto dimension = [c](const uint32_t(&d)[3]) -> uint64_t { return c < 3 ? d[c] : 1; };
  switch (o.special()) {
    case Special::kTid:
      return c < 3 ? t->tid[c] : 0;
    case Special::kNtid:
      return dimension(launch_.block);
    case Special::kCtaid:
      return c < 3 ? ctaid_[c] : 0;
    case Special::kNctaid:
      return dimension(launch_.grid);
    case Special::kLaneid:
      return t->lane();
    case Special::kLanemaskEq:
      return uint64_t{1} << t->lane();
    case Special::kLanemaskLt:
      return (uint64_t{1} << t->lane()) - 1;
    case Special::kLanemaskLe:
      return (uint64_t{2} << t->lane()) - 1;
    case Special::kLanemaskGt:
      return 0xFFFFFFFF & ~((uint64_t{2} << t->lane()) - 1);
    case Special::kLanemaskGe:
      return 0xFFFFFFFF & ~((uint64_t{1} << t->lane()) - 1);
    default:
      throw Failure("not covered: " + std::string(NameOf(o.special())));
  }
}

uint64_t Block::Read(Thread* t, const Instruction& i, const Operand& o, Type type) {
  const unsigned width = type == Type::kPred ? 1 : BitsOf(type);
  if (width > 64) throw Failure("not covered: 128 bits");
  switch (o.kind) {
    case Operand::Kind::kRegister: {
      const uint64_t bits = t->frame().registers[o.index];
      if (o.negated) return bits == 0 ? 1 : 0;
      return Truncate(bits, width);
    }
    case Operand::Kind::kInteger:
    case Operand::Kind::kFloat32:
    case Operand::Kind::kFloat64: {
      const uint64_t bits = ImmediateBits(o, type);
      return o.negated ? bits ^ 1 : bits;
    }
    case Operand::Kind::kSymbol:
      return AddressOf(t, o.symbol) + static_cast<uint64_t>(o.offset);
    case Operand::Kind::kSpecial:
      return Truncate(ReadSpecial(t, o), width);
    case Operand::Kind::kVector: {  // mov.b64 d, {a, b}
      uint64_t bits = 0;
      const unsigned part = width / o.count;
      for (uint32_t n = 0; n < o.count; ++n) {
        const Operand& member = i.ElementsOf(o)[n];
        const uint64_t value =
            member.is_register() ? t->frame().registers[member.index] : member.bits;
        bits |= Truncate(value, part) << (n * part);
      }
      return bits;
    }
    default:
      throw Failure("not covered: this operand");
  }
}

// A value narrower than its register is extended as its type says (PTX ISA 9.4.1).
void Block::Write(Thread* t, const Operand& o, Type type, uint64_t bits) {
  if (o.kind == Operand::Kind::kSink) return;
  if (!o.is_register()) throw Failure("not covered: this destination");
  const Type held = t->frame().function->registers[o.index].type;
  if (held != Type::kPred && IsSigned(type) && BitsOf(type) < BitsOf(held)) {
    bits = static_cast<uint64_t>(SignExtend(bits, BitsOf(type)));
  }
  t->frame().registers[o.index] = held == Type::kPred ? bits & 1 : Truncate(bits, BitsOf(held));
}

void Block::Move(Thread* t, const Instruction& i) {
  if (i.modifiers.vector > 1) {
    std::vector<uint64_t> values;
    for (const Operand& o : i.ElementsOf(i.operands[1])) values.push_back(Read(t, i, o, i.type()));
    const auto to = i.ElementsOf(i.operands[0]);
    for (size_t n = 0; n < to.size(); ++n) Write(t, to[n], i.type(), values[n]);
    return;
  }
  const uint64_t bits = Read(t, i, i.operands[1], i.type());
  const Operand& d = i.operands[0];
  if (d.kind != Operand::Kind::kVector) return Write(t, d, i.type(), bits);
  const unsigned part = BitsOf(i.type()) / d.count;
  for (uint32_t n = 0; n < d.count; ++n) {
    Write(t, i.ElementsOf(d)[n], Type::kNone, Truncate(bits >> (n * part), part));
  }
}

void Block::Compute(Thread* t, const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kMov:
      return Move(t, i);
    case Opcode::kCvta:
      return ConvertAddress(t, i);
    case Opcode::kIsspacep:
      return AskSpace(t, i);
    case Opcode::kMembar:
    case Opcode::kFence:
    case Opcode::kNanosleep:
    case Opcode::kPrefetch:
    case Opcode::kPrefetchu:
      return;
    default:
      break;
  }
  const std::string_view shape = ShapeOf(i);
  const auto slot = [&shape](size_t n) {
    return static_cast<Slot>(n < shape.size() ? shape[n] : shape.back());
  };
  std::vector<uint64_t> sources;
  for (size_t n = 1; n < i.operands.size(); ++n) {
    sources.push_back(Read(t, i, i.operands[n], SlotType(i, slot(n))));
  }
  Value value;
  if (InfoOf(i.opcode).destinations != 1 || !Evaluate(i, sources, &t->carry, &value)) {
    throw Failure("not covered");
  }
  Write(t, i.operands[0], SlotType(i, slot(0)), value.bits);
  if (i.second_destination.kind != Operand::Kind::kNone) {
    Write(t, i.second_destination, Type::kPred, value.second ? 1 : 0);
  }
}

}  // namespace smolvm::ptx_interpreter
