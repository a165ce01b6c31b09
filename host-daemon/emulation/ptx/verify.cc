#include "host-daemon/emulation/ptx/verify.h"

#include <string>

#include "host-daemon/emulation/ptx/immediates.h"
#include "host-daemon/emulation/ptx/quote.h"
#include "host-daemon/emulation/ptx/shape.h"

namespace smolvm::emulation::ptx {
namespace {

using Kind = Operand::Kind;

// Edges of a function's control flow: many indirect branches may share one long list.
constexpr uint64_t kMaxIndirectEdges = uint64_t{1} << 22;

class InstructionVerifier {
 public:
  InstructionVerifier(const Module& module, const Function& function,
                      const Instruction& instruction)
      : module_(module), function_(function), i_(instruction), info_(InfoOf(instruction.opcode)) {}

  // Empty when all is well.
  std::string Run() {
    if (i_.operands.size() < info_.least_operands || i_.operands.size() > info_.most_operands) {
      return Text() + ": wrong number of operands";
    }
    if (!OptionsFit()) return Text() + ": its operands are not those of its modifiers";
    if (!HasItsTypes()) return Text() + ": a type is missing";
    if (!CheckSecondDestination()) return Text() + ": '|' has no place here";
    if (i_.opcode == Opcode::kCall) return CheckCall();
    const std::string_view shape = ShapeOf(i_);
    for (size_t n = 0; n < i_.operands.size(); ++n) {
      const auto slot = static_cast<Slot>(n < shape.size() ? shape[n] : shape.back());
      if (!CheckOperand(i_.operands[n], slot, n < info_.destinations)) {
        return Text() + ": operand " + std::to_string(n + 1) + " does not fit";
      }
    }
    const std::string error = CheckImmediates(i_);
    return error.empty() ? "" : Text() + ": " + error;
  }

 private:
  std::string Text() const { return Quoted(i_.text); }

  // cp.async.{ca,cg}.shared.global [to], [from], size{, source size or predicate}
  bool IsAsyncCopy() const {
    const auto& o = i_.operands;
    const bool has_spaces = i_.modifiers.space == StateSpace::kShared &&
                            i_.modifiers.source_space == StateSpace::kGlobal &&
                            i_.modifiers.cache != Cache::kNone;
    if (!has_spaces || o[2].kind != Kind::kInteger) return false;
    if (!CheckAddress(o[0], StateSpace::kShared) || !CheckAddress(o[1], StateSpace::kGlobal))
      return false;
    return o.size() < 4 || CheckTyped(o[3], Type::kU32, false, false) ||
           (o[3].is_register() && RegisterType(o[3]) == Type::kPred);
  }

  // PTX ISA 9.7.13.15: in shared memory, by a generic address or by one of .shared. The object is
  // the one operand in brackets; a state or predicate may stand before it, a count, state or parity
  // and a time behind it.
  bool IsMbarrier() const {
    const StateSpace space = i_.modifiers.space;
    if (space != StateSpace::kNone && space != StateSpace::kShared &&
        space != StateSpace::kSharedCluster) {
      return false;
    }
    const auto& o = i_.operands;
    const size_t at = o[0].kind == Kind::kAddress ? 0 : 1;
    if (at >= o.size() || !CheckAddress(o[at], space)) return false;
    const bool tests =
        i_.opcode == Opcode::kMbarrierTestWait || i_.opcode == Opcode::kMbarrierTryWait;
    if (tests && at == 0) return false;
    if (at == 1 &&
        !(tests ? IsPredicateDestination(o[0]) : CheckTyped(o[0], Type::kB64, false, true)))
      return false;
    const bool by_state = tests && i_.text.find(".parity") == std::string_view::npos;
    for (size_t n = at + 1; n < o.size(); ++n) {
      const Type type = by_state && n == at + 1 ? Type::kB64 : Type::kU32;
      if (!CheckTyped(o[n], type, false, false)) return false;
    }
    return true;
  }

  // Operands that a modifier asks for, and that nothing else does.
  bool OptionsFit() const {
    const size_t count = i_.operands.size();
    switch (i_.opcode) {
      case Opcode::kSetp:
      case Opcode::kSet:
        return (count == 4) == (i_.modifiers.boolean != Bool::kNone);
      case Opcode::kLop3:
        return (count == 6) == (i_.modifiers.boolean != Bool::kNone);
      case Opcode::kShfl:
        return (count == 5) == i_.modifiers.sync;
      case Opcode::kVote:
        return (count == 3) == i_.modifiers.sync;
      case Opcode::kAtom:
        return (count == 4) == (i_.modifiers.reduction == Reduction::kCas);
      case Opcode::kCpAsync:
        return IsAsyncCopy();
      case Opcode::kMbarrierInit:
      case Opcode::kMbarrierInval:
      case Opcode::kMbarrierExpectTx:
      case Opcode::kMbarrierCompleteTx:
      case Opcode::kMbarrierArrive:
      case Opcode::kMbarrierArriveDrop:
      case Opcode::kMbarrierTestWait:
      case Opcode::kMbarrierTryWait:
      case Opcode::kCpAsyncMbarrierArrive:
        return IsMbarrier();
      default:
        return true;
    }
  }

  bool HasItsTypes() const {
    switch (i_.opcode) {
      case Opcode::kSet:
      case Opcode::kSlct:
      case Opcode::kCvt:
      case Opcode::kCvtPack:
      case Opcode::kDp4a:
      case Opcode::kDp2a:
        return i_.type_count >= 2;
      default:
        return true;
    }
  }

  bool CheckSecondDestination() const {
    if (i_.second_destination.kind == Kind::kNone) return true;
    switch (i_.opcode) {
      case Opcode::kSetp:
      case Opcode::kShfl:
      case Opcode::kMatch:
      case Opcode::kElect:
      case Opcode::kLop3:
        return IsPredicateDestination(i_.second_destination);
      default:
        return false;
    }
  }

  Type RegisterType(const Operand& o) const { return function_.registers[o.index].type; }

  bool IsPredicateDestination(const Operand& o) const {
    return o.kind == Kind::kSink || (o.is_register() && RegisterType(o) == Type::kPred);
  }

  bool IsPredicateSource(const Operand& o) const {
    if (o.kind == Kind::kInteger) return true;
    return o.is_register() && RegisterType(o) == Type::kPred;
  }

  // PTX ISA 9.4: which registers an operand of `type` may be held in.
  bool RegisterFits(const Operand& o, Type type, bool may_be_wider) const {
    const Type held = RegisterType(o);
    if (o.negated || held == Type::kPred) return false;
    const bool has_selector = o.selector != Selector::kNone;
    if (has_selector && (info_.modifiers & modifier::kVideo) == 0) return false;
    if (BitsOf(held) < BitsOf(type)) return false;
    if (BitsOf(held) > BitsOf(type) && !may_be_wider) return false;
    if (IsBits(held) || IsBits(type)) return true;
    if (type == Type::kF32 || type == Type::kF64) return IsFloat(held);
    if (IsInteger(type) && (held == Type::kF32 || held == Type::kF64)) return false;
    return true;
  }

  static bool ImmediateFits(const Operand& o, Type type) {
    if (type == Type::kF32 || type == Type::kF64) return o.kind != Kind::kInteger;
    if (o.kind == Kind::kInteger) return true;
    if (o.kind == Kind::kFloat32) return BitsOf(type) == 32 && !IsInteger(type);
    return BitsOf(type) == 64 && !IsInteger(type);
  }

  bool CheckTyped(const Operand& o, Type type, bool may_be_wider, bool is_destination) const {
    if (type == Type::kPred) {
      return is_destination ? IsPredicateDestination(o) : IsPredicateSource(o);
    }
    if (o.is_register()) return RegisterFits(o, type, may_be_wider);
    if (is_destination) return o.kind == Kind::kSink;
    return o.is_immediate() && ImmediateFits(o, type);
  }

  // ld, st, atom and red: as many members as the modifier says.
  bool CheckMaybeVector(const Operand& o, Type type, bool may_be_wider, bool is_destination) const {
    if (i_.modifiers.vector == 1) return CheckTyped(o, type, may_be_wider, is_destination);
    if (o.kind == Kind::kSink) return is_destination;
    if (o.kind != Kind::kVector || o.count != i_.modifiers.vector) return false;
    for (const Operand& member : i_.ElementsOf(o)) {
      if (!CheckTyped(member, type, may_be_wider, is_destination)) return false;
    }
    return true;
  }

  // mov.b64 {a, b}, c and its like: the members are parts of equal width.
  bool CheckPack(const Operand& o, bool is_destination) const {
    if (o.count == 0 || BitsOf(i_.type()) % o.count != 0 || IsFloat(i_.type())) return false;
    const unsigned width = BitsOf(i_.type()) / o.count;
    for (const Operand& member : i_.ElementsOf(o)) {
      if (member.is_register()) {
        if (member.negated || BitsOf(RegisterType(member)) != width) return false;
      } else if (is_destination ? member.kind != Kind::kSink : member.kind != Kind::kInteger) {
        return false;
      }
    }
    return true;
  }

  // mov.v2, mov.v4: element by element.
  bool CheckVectorMove(const Operand& o, bool is_destination) const {
    if (o.kind != Kind::kVector || o.count != i_.modifiers.vector) return false;
    if (i_.type() == Type::kPred) return false;
    for (const Operand& member : i_.ElementsOf(o)) {
      if (!CheckMove(member, is_destination)) return false;
    }
    return true;
  }

  bool CheckMove(const Operand& o, bool is_destination) const {
    const Type type = i_.type();
    if (o.kind == Kind::kVector) return type != Type::kPred && CheckPack(o, is_destination);
    if (!is_destination && o.kind == Kind::kSymbol) return BitsOf(type) == 32 || BitsOf(type) == 64;
    if (!is_destination && o.kind == Kind::kSpecial) {
      const Type held = TypeOf(o.special());
      if (held == Type::kPred || type == Type::kPred) return held == type;
      return BitsOf(type) <= BitsOf(held);
    }
    return CheckTyped(o, type, false, is_destination);
  }

  bool CheckAddress(const Operand& o, StateSpace space) const {
    if (o.kind != Kind::kAddress) return false;
    switch (o.base) {
      case Operand::AddressBase::kAbsolute:
        return true;
      case Operand::AddressBase::kRegister:
        return IsAddressRegister(o.index);
      default:
        return o.symbol.kind != SymbolKind::kFunction &&
               SpaceFits(space, VariableOf(module_, function_, o.symbol).space);
    }
  }

  bool IsAddressRegister(uint32_t index) const {
    const Type type = function_.registers[index].type;
    return (BitsOf(type) == 32 || BitsOf(type) == 64) && !IsFloat(type);
  }

  static bool SpaceFits(StateSpace named, StateSpace held) {
    if (named == StateSpace::kNone) return true;
    return named == held || (named == StateSpace::kSharedCluster && held == StateSpace::kShared);
  }

  bool CheckPointer(const Operand& o) const {
    return o.kind == Kind::kSymbol || (o.is_register() && IsAddressRegister(o.index) && !o.negated);
  }

  static Type Doubled(Type type) {
    switch (type) {
      case Type::kU16:
        return Type::kU32;
      case Type::kS16:
        return Type::kS32;
      case Type::kU32:
        return Type::kU64;
      case Type::kS32:
        return Type::kS64;
      default:
        return Type::kNone;
    }
  }

  bool CheckOperand(const Operand& o, Slot slot, bool is_destination) const {
    switch (slot) {
      case Slot::kType:
        return CheckMaybeVector(o, i_.type(), false, is_destination);
      case Slot::kSource:
        return CheckTyped(o, i_.source_type(), false, is_destination);
      case Slot::kWide:
        return Doubled(i_.type()) != Type::kNone &&
               CheckTyped(o, Doubled(i_.type()), false, is_destination);
      case Slot::kLooseType:
        return CheckMaybeVector(o, i_.type(), true, is_destination);
      case Slot::kLooseSource:
        return CheckTyped(o, i_.source_type(), true, is_destination);
      case Slot::kMove:
        return i_.modifiers.vector == 1 ? CheckMove(o, is_destination)
                                        : CheckVectorMove(o, is_destination);
      case Slot::kPointer:
        return o.kind == Kind::kSymbol || o.kind == Kind::kInteger ||
               CheckTyped(o, i_.type(), false, is_destination);
      case Slot::kAnyPointer:
        return CheckPointer(o);
      case Slot::kPredicate:
        return is_destination ? IsPredicateDestination(o) : IsPredicateSource(o);
      case Slot::kWord:
        return CheckTyped(o, Type::kU32, false, is_destination);
      case Slot::kConstant:
        return o.kind == Kind::kInteger;
      case Slot::kAddress:
        return CheckAddress(o, i_.modifiers.space);
      case Slot::kLabel:
        return o.kind == Kind::kLabel;
      case Slot::kTargets:
        return o.kind == Kind::kTargets;
      case Slot::kFree:
        return true;
    }
    return false;
  }

  // An argument or result is a .param variable as large as the parameter, or a register or
  // immediate of its type.
  bool CheckArgument(const Operand& o, const Variable& param, bool is_result) const {
    if (o.kind == Kind::kSymbol) {
      if (o.symbol.kind == SymbolKind::kFunction || o.offset != 0) return false;
      const Variable& variable = VariableOf(module_, function_, o.symbol);
      return variable.space == StateSpace::kParam && variable.bytes == param.bytes;
    }
    return !param.is_array && CheckTyped(o, param.type, false, is_result);
  }

  bool CheckArguments(const std::vector<Operand>& given, const std::vector<Variable>& params,
                      bool is_result) const {
    if (given.size() != params.size()) return false;
    for (size_t n = 0; n < given.size(); ++n) {
      if (!CheckArgument(given[n], params[n], is_result)) return false;
    }
    return true;
  }

  std::string CheckSignature(const Call& call, const std::vector<Variable>& returns,
                             const std::vector<Variable>& params) const {
    if (!CheckArguments(call.returns, returns, true)) return "the results of a call do not fit";
    if (!CheckArguments(call.arguments, params, false)) return "the arguments of a call do not fit";
    return "";
  }

  std::string CheckCall() const {
    const Call& call = function_.calls[i_.call];
    if (call.callee.kind == Kind::kSymbol) {
      const Function& callee = module_.functions[call.callee.symbol.index];
      if (callee.is_entry) return "a kernel cannot be called";
      return CheckSignature(call, callee.returns, callee.params);
    }
    if (BitsOf(RegisterType(call.callee)) != 64) return "a function's address has 64 bits";
    if (call.prototype != kNoIndex) {
      const Prototype& prototype = function_.prototypes[call.prototype];
      return CheckSignature(call, prototype.returns, prototype.params);
    }
    if (call.targets == kNoIndex) return "an indirect call needs a prototype";
    for (const uint32_t target : function_.call_targets[call.targets].functions) {
      const Function& callee = module_.functions[target];
      std::string error = CheckSignature(call, callee.returns, callee.params);
      if (!error.empty()) return error;
    }
    return "";
  }

  const Module& module_;
  const Function& function_;
  const Instruction& i_;
  const OpcodeInfo& info_;
};

bool Fail(uint32_t line, const std::string& message, Diagnostic::Code code,
          Diagnostic* diagnostic) {
  diagnostic->code = code;
  diagnostic->line = line;
  diagnostic->message = "line " + std::to_string(line) + ": " + message;
  return false;
}

bool VerifyFunction(const Module& module, const Function& function, Diagnostic* diagnostic) {
  uint64_t indirect_edges = 0;
  uint64_t checked_targets = 0;
  for (const Instruction& instruction : function.body) {
    const std::string error = InstructionVerifier(module, function, instruction).Run();
    if (!error.empty()) {
      return Fail(instruction.line, error, Diagnostic::Code::kSyntax, diagnostic);
    }
    if (instruction.opcode == Opcode::kBrxIdx) {
      indirect_edges += function.branch_targets[instruction.operands[1].index].labels.size();
    }
    if (instruction.opcode == Opcode::kCall) {
      const uint32_t targets = function.calls[instruction.call].targets;
      if (targets != kNoIndex) checked_targets += function.call_targets[targets].functions.size();
    }
    if (indirect_edges > kMaxIndirectEdges || checked_targets > kMaxIndirectEdges) {
      return Fail(instruction.line, "too many indirect branches", Diagnostic::Code::kTooLarge,
                  diagnostic);
    }
  }
  return true;
}

}  // namespace

bool Verify(const Module& module, Diagnostic* diagnostic) {
  for (const Function& function : module.functions) {
    if (!VerifyFunction(module, function, diagnostic)) return false;
  }
  return true;
}

}  // namespace smolvm::emulation::ptx
