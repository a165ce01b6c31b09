// Instructions and operands. PTX ISA 9.0, 4.3.2 (statements), 6 (operands).
#include <utility>

#include "host-daemon/emulation/ptx/limits.h"
#include "host-daemon/emulation/ptx/mnemonic.h"
#include "host-daemon/emulation/ptx/parser.h"
#include "host-daemon/emulation/ptx/quote.h"

namespace smolvm::emulation::ptx {
namespace {

// "x" or "r" → 0 … "w" or "a" → 3; -1 for anything else.
int ComponentOf(std::string_view dot_word) {
  if (dot_word.size() != 2) return -1;
  const size_t by_axis = std::string_view("xyzw").find(dot_word[1]);
  if (by_axis != std::string_view::npos) return static_cast<int>(by_axis);
  const size_t by_colour = std::string_view("rgba").find(dot_word[1]);
  return by_colour == std::string_view::npos ? -1 : static_cast<int>(by_colour);
}

// Of array elements.
bool IsIndex(Type type) {
  const unsigned bits = BitsOf(type);
  return (IsInteger(type) || IsBits(type)) && (bits == 16 || bits == 32 || bits == 64);
}

// Those whose address may be "array[index]".
bool ReadsOrWritesMemory(Opcode opcode) {
  return opcode == Opcode::kLd || opcode == Opcode::kLdu || opcode == Opcode::kSt;
}

Selector SelectorOf(std::string_view dot_word) {
  constexpr std::pair<std::string_view, Selector> kWords[] = {
      {".b0", Selector::kB0}, {".b1", Selector::kB1}, {".b2", Selector::kB2},
      {".b3", Selector::kB3}, {".h0", Selector::kH0}, {".h1", Selector::kH1}};
  for (const auto& [word, selector] : kWords) {
    if (dot_word == word) return selector;
  }
  return Selector::kNone;
}

}  // namespace

bool Parser::ParseGuard(Instruction* instruction) {
  Take();
  instruction->guard_negated = Accept("!");
  const uint32_t line = peek().line;
  std::string_view text;
  Name name;
  if (!ExpectName(&text)) return false;
  if (!Lookup(text, &name) || name.kind != Name::Kind::kRegister ||
      function().registers[name.index].type != Type::kPred) {
    return FailAt(line, Quoted(text) + " is not a predicate");
  }
  instruction->guard = name.index;
  return true;
}

// The parts of a mnemonic may stand apart ("add .s32"); then a copy without blanks is kept.
bool Parser::ParseMnemonicTokens(const Token& first, std::string_view* mnemonic) {
  *mnemonic = first.text;
  std::string joined;
  while (peek().kind == Token::Kind::kDotWord) {
    const std::string_view word = Take().text;
    if (joined.empty() && word.data() == mnemonic->data() + mnemonic->size()) {
      *mnemonic = {mnemonic->data(), mnemonic->size() + word.size()};
      continue;
    }
    if (joined.empty()) joined = *mnemonic;
    joined += word;
  }
  if (joined.empty()) return true;
  module_->sources.push_back(std::make_shared<const std::string>(std::move(joined)));
  *mnemonic = *module_->sources.back();
  return true;
}

bool Parser::ParseInstruction(const Token& first, Instruction instruction) {
  std::string_view mnemonic;
  std::string error;
  if (!ParseMnemonicTokens(first, &mnemonic)) return false;
  instruction.line = first.line;
  if (!ParseMnemonic(mnemonic, &instruction, &error)) return FailAt(first.line, std::move(error));
  bool ok;
  switch (instruction.opcode) {
    case Opcode::kBra:
      ok = ParseBranch(&instruction);
      break;
    case Opcode::kBrxIdx:
      ok = ParseIndirectBranch(&instruction);
      break;
    case Opcode::kCall:
      ok = ParseCall(&instruction);
      break;
    default:
      ok = ParseOperands(&instruction);
      break;
  }
  if (!ok || !Expect(";")) return false;
  if (function().body.size() >= kNoIndex - 1) {
    return Fail(Diagnostic::Code::kTooLarge, first.line, "the function is too large");
  }
  function().body.push_back(std::move(instruction));
  return true;
}

bool Parser::ParseOperands(Instruction* instruction) {
  if (At(";")) return true;
  do {
    Operand operand;
    if (!ParseOperand(instruction, true, &operand)) return false;
    instruction->operands.push_back(operand);
    if (instruction->operands.size() == 1 && Accept("|") &&
        !ParseOperand(instruction, false, &instruction->second_destination)) {
      return false;
    }
    if (instruction->operands.size() + instruction->elements.size() > kMaxOperands) {
      return FailAt(peek().line, "too many operands");
    }
  } while (Accept(","));
  return !instruction->modifiers.cache_hint || TakeCachePolicy(instruction);
}

// The last operand of instructions with .L2::cache_hint. It steers caches only, and goes no further
// than this, so that the others are counted without it.
bool Parser::TakeCachePolicy(Instruction* instruction) {
  const auto is_policy = [this](const Operand& operand) {
    if (operand.kind == Operand::Kind::kInteger) return true;
    if (!operand.is_register() || operand.negated) return false;
    const Type type = function().registers[operand.index].type;
    return BitsOf(type) == 64 && !IsFloat(type);
  };
  if (instruction->operands.empty() || !is_policy(instruction->operands.back())) {
    return FailAt(instruction->line, Quoted(instruction->text) + ": a cache policy is missing");
  }
  instruction->operands.pop_back();
  return true;
}

// `may_nest`: vectors and addresses may stand here.
bool Parser::ParseOperand(Instruction* instruction, bool may_nest, Operand* operand) {
  const Token& token = peek();
  if (may_nest && At("{")) return ParseVector(instruction, operand);
  if (may_nest && At("[")) return ParseAddress(instruction, operand);
  if (token.kind == Token::Kind::kIdentifier && !At("WARP_SZ")) {
    return ParseNamedOperand(instruction, operand);
  }
  if (At("!")) {
    const Token bang = Take();
    if (peek().kind == Token::Kind::kIdentifier && !At("WARP_SZ")) {
      operand->negated = true;
      return ParseNamedOperand(instruction, operand) &&
             (operand->is_register() || FailAt(bang.line, "'!' is for predicates"));
    }
    Constant constant;
    if (!ParseUnary(0, &constant)) return false;
    operand->kind = Operand::Kind::kInteger;
    operand->bits = constant.bits == 0 ? 1 : 0;
    return true;
  }
  switch (token.kind) {
    case Token::Kind::kInteger:
    case Token::Kind::kFloat32:
    case Token::Kind::kFloat64:
    case Token::Kind::kPunctuation:
    case Token::Kind::kIdentifier:
      break;
    default:
      return FailHere("an operand");
  }
  if (token.kind == Token::Kind::kPunctuation && !At("(") && !At("-") && !At("+") && !At("~")) {
    return FailHere("an operand");
  }
  Constant constant;
  if (!ParseConstant(&constant)) return false;
  operand->kind = constant.kind;
  operand->bits = constant.bits;
  return true;
}

bool Parser::ParseNamedOperand(Instruction* instruction, Operand* operand) {
  const Token token = Take();
  if (token.text == "_") {
    operand->kind = Operand::Kind::kSink;
    return true;
  }
  Name name;
  if (!Lookup(token.text, &name)) {
    if (ParseSpecial(token, instruction, operand)) return true;
    return FailAt(token.line, "unknown symbol " + Quoted(token.text));
  }
  switch (name.kind) {
    case Name::Kind::kRegister:
      operand->kind = Operand::Kind::kRegister;
      operand->index = name.index;
      return ParseSelector(operand);
    case Name::Kind::kVectorRegister:
      return ParseVectorRegister(name, instruction, operand);
    case Name::Kind::kSymbol:
      operand->kind = Operand::Kind::kSymbol;
      operand->symbol = name.symbol;
      if (At("[")) return ParseIndex(*instruction, operand);
      while (At("+") || At("-")) {
        if (!ParseOffset(&operand->offset)) return false;
      }
      return true;
    default:
      return FailAt(token.line, Quoted(token.text) + " cannot be an operand here");
  }
}

// False without an error when it is no special register. "%tid" alone is the whole vector:
// "mov.v4.u32 v, %tid".
bool Parser::ParseSpecial(const Token& name, Instruction* instruction, Operand* operand) {
  Special special;
  unsigned number;
  if (!FindSpecial(name.text, &special, &number)) return false;
  operand->kind = Operand::Kind::kSpecial;
  operand->index = static_cast<uint32_t>(special);
  operand->component = static_cast<uint8_t>(number);
  if (!HasComponents(special)) return true;
  constexpr uint8_t kComponents = 4;
  if (peek().kind != Token::Kind::kDotWord && instruction->modifiers.vector == kComponents) {
    const Operand one = *operand;
    *operand = {.kind = Operand::Kind::kVector,
                .index = static_cast<uint32_t>(instruction->elements.size()),
                .count = kComponents};
    for (uint8_t k = 0; k < kComponents; ++k) {
      instruction->elements.push_back(one);
      instruction->elements.back().component = k;
    }
    return true;
  }
  const int component = ComponentOf(peek().text);
  if (peek().kind != Token::Kind::kDotWord || component < 0) {
    return FailHere("a component of " + Quoted(name.text));
  }
  Take();
  operand->component = static_cast<uint8_t>(component);
  return true;
}

bool Parser::ParseVectorRegister(const Name& name, Instruction* instruction, Operand* operand) {
  if (peek().kind == Token::Kind::kDotWord) {
    const int component = ComponentOf(peek().text);
    if (component < 0 || static_cast<uint32_t>(component) >= name.count) {
      return FailHere("a component of the vector");
    }
    Take();
    operand->kind = Operand::Kind::kRegister;
    operand->index = name.index + static_cast<uint32_t>(component);
    return true;
  }
  operand->kind = Operand::Kind::kVector;
  operand->index = static_cast<uint32_t>(instruction->elements.size());
  operand->count = name.count;
  for (uint32_t i = 0; i < name.count; ++i) {
    instruction->elements.push_back({.kind = Operand::Kind::kRegister, .index = name.index + i});
  }
  return true;
}

bool Parser::ParseSelector(Operand* operand) {
  if (peek().kind != Token::Kind::kDotWord) return true;
  operand->selector = SelectorOf(peek().text);
  if (operand->selector == Selector::kNone) return FailHere("a byte or half-word selector");
  Take();
  return true;
}

// A list of one is that one: "ld.global.b32 {%r1}, [%rd1]".
bool Parser::ParseVector(Instruction* instruction, Operand* operand) {
  Take();
  std::vector<Operand> members;
  do {
    Operand member;
    if (!ParseOperand(instruction, false, &member)) return false;
    if (member.kind == Operand::Kind::kVector) return FailAt(peek().line, "a vector in a vector");
    members.push_back(member);
    if (members.size() > kMaxOperands) return FailAt(peek().line, "too many operands");
  } while (Accept(","));
  if (!Expect("}")) return false;
  if (members.size() == 1) {
    *operand = members[0];
    return true;
  }
  operand->kind = Operand::Kind::kVector;
  operand->index = static_cast<uint32_t>(instruction->elements.size());
  operand->count = static_cast<uint32_t>(members.size());
  instruction->elements.insert(instruction->elements.end(), members.begin(), members.end());
  return true;
}

// "array[3]", "array[%r1]", "array[%r1+3]": an index counts elements of the array's type, which for
// vectors and arrays of arrays is the innermost one (as ptxas has it). Where memory is read or
// written it is the address itself.
bool Parser::ParseIndex(const Instruction& instruction, Operand* operand) {
  const uint32_t line = Take().line;
  if (operand->symbol.kind == SymbolKind::kFunction) return FailAt(line, "an index of a function");
  const Variable& variable = VariableOf(*module_, function(), operand->symbol);
  if (!variable.is_array) return FailAt(line, "an index of something that is no array");
  const uint64_t bytes = BytesOf(variable.type);
  uint32_t reg = kNoIndex;
  Name name;
  if (peek().kind == Token::Kind::kIdentifier && !At("WARP_SZ")) {
    const Token token = Take();
    if (!Lookup(token.text, &name) || name.kind != Name::Kind::kRegister ||
        !IsIndex(function().registers[name.index].type)) {
      return FailAt(token.line, Quoted(token.text) + " is no index");
    }
    reg = name.index;
  }
  int64_t index = 0;
  if (reg == kNoIndex ? !ParseInteger(&index) : At("+") && !ParseOffset(&index)) return false;
  operand->offset = static_cast<int64_t>(static_cast<uint64_t>(index) * bytes);
  if (!Expect("]")) return false;
  if (reg != kNoIndex) AddIndexing(instruction, reg, bytes, operand);
  if (ReadsOrWritesMemory(instruction.opcode)) {
    operand->base =
        operand->is_register() ? Operand::AddressBase::kRegister : Operand::AddressBase::kSymbol;
    operand->kind = Operand::Kind::kAddress;
  }
  return true;
}

// What an index in a register stands for: the address is made by instructions of its own, before
// the one that it stands in, and `*operand` becomes the register that holds it. As ptxas has it,
// one of 32 bits is extended by its sign whatever its type.
void Parser::AddIndexing(const Instruction& instruction, uint32_t reg, uint64_t bytes,
                         Operand* operand) {
  const bool is_wide = ReadsOrWritesMemory(instruction.opcode) || BitsOf(instruction.type()) == 64;
  const Type type = is_wide ? Type::kS64 : Type::kS32;
  const auto add = [&](Opcode opcode, std::string_view text, std::vector<Operand> sources) {
    Instruction made;
    made.opcode = opcode;
    made.line = instruction.line;
    made.text = text;
    made.types[made.type_count++] = type;
    const Operand result{.kind = Operand::Kind::kRegister,
                         .index = AddRegister({.prefix = "index", .type = type})};
    made.operands.push_back(result);
    made.operands.insert(made.operands.end(), sources.begin(), sources.end());
    if (opcode == Opcode::kCvt) {
      const Type held = function().registers[reg].type;
      const Type narrow = IsSigned(held) ? Type::kS16 : Type::kU16;
      made.types[made.type_count++] = BitsOf(held) == 16   ? narrow
                                      : BitsOf(held) == 32 ? Type::kS32
                                                           : Type::kS64;
    }
    if (opcode == Opcode::kMad) made.modifiers.half = Half::kLo;
    function().body.push_back(std::move(made));
    return result;
  };
  const Operand base = add(Opcode::kMov, "mov", {*operand});
  const Operand index =
      add(Opcode::kCvt, "cvt", {{.kind = Operand::Kind::kRegister, .index = reg}});
  const Operand size{.kind = Operand::Kind::kInteger, .bits = bytes};
  *operand = add(Opcode::kMad, "mad.lo", {index, size, base});
}

bool Parser::ParseOffset(int64_t* offset) {
  const bool minus = Take().text == "-";
  const uint32_t line = peek().line;
  Constant constant;
  // "+4*2" and "+4-2" are whole expressions, "-4+2" is two offsets.
  if (minus ? !ParseUnary(0, &constant) : !ParseConstant(&constant)) return false;
  if (constant.kind != Operand::Kind::kInteger) return FailAt(line, "an integer is expected");
  const uint64_t term = minus ? 0 - constant.bits : constant.bits;
  *offset = static_cast<int64_t>(static_cast<uint64_t>(*offset) + term);
  return true;
}

bool Parser::ParseAddressBase(Operand* operand) {
  operand->kind = Operand::Kind::kAddress;
  if (peek().kind != Token::Kind::kIdentifier || At("WARP_SZ")) {
    operand->base = Operand::AddressBase::kAbsolute;
    return ParseInteger(&operand->offset);
  }
  const Token token = Take();
  Name name;
  if (!Lookup(token.text, &name)) {
    return FailAt(token.line, "unknown symbol " + Quoted(token.text));
  }
  if (name.kind == Name::Kind::kRegister) {
    operand->base = Operand::AddressBase::kRegister;
    operand->index = name.index;
  } else if (name.kind == Name::Kind::kSymbol) {
    operand->base = Operand::AddressBase::kSymbol;
    operand->symbol = name.symbol;
  } else {
    return FailAt(token.line, Quoted(token.text) + " is not an address");
  }
  while (At("+") || At("-")) {
    if (!ParseOffset(&operand->offset)) return false;
  }
  return true;
}

// "[base+offset]", or a group: "[texture, sampler, {x, y}]", whose first member is an address too.
bool Parser::ParseAddress(Instruction* instruction, Operand* operand) {
  Take();
  Operand first;
  if (!ParseAddressBase(&first)) return false;
  if (Accept("]")) {
    *operand = first;
    // Where the memory is, for systems of several kinds of it.
    if (instruction->opcode == Opcode::kLd) Accept(".unified");
    return true;
  }
  std::vector<Operand> members{first};
  while (Accept(",")) {
    Operand member;
    const bool parsed =
        At("{") ? ParseVector(instruction, &member) : ParseOperand(instruction, false, &member);
    if (!parsed) return false;
    members.push_back(member);
    if (members.size() > kMaxOperands) return FailAt(peek().line, "too many operands");
  }
  operand->kind = Operand::Kind::kGroup;
  operand->index = static_cast<uint32_t>(instruction->elements.size());
  operand->count = static_cast<uint32_t>(members.size());
  instruction->elements.insert(instruction->elements.end(), members.begin(), members.end());
  return Expect("]");
}

bool Parser::ParseBranch(Instruction* instruction) {
  const uint32_t line = peek().line;
  std::string_view label;
  if (!ExpectName(&label)) return false;
  const auto owner = static_cast<uint32_t>(function().body.size());
  pending_labels_.back().push_back({label, line, false, owner, 0});
  instruction->operands.push_back({.kind = Operand::Kind::kLabel});
  return true;
}

bool Parser::ParseIndirectBranch(Instruction* instruction) {
  Operand index;
  if (!ParseOperand(instruction, false, &index) || !Expect(",")) return false;
  const uint32_t line = peek().line;
  std::string_view text;
  Name name;
  if (!ExpectName(&text)) return false;
  if (!Lookup(text, &name) || name.kind != Name::Kind::kBranchTargets) {
    return FailAt(line, Quoted(text) + " is not a list of branch targets");
  }
  instruction->operands.push_back(index);
  instruction->operands.push_back({.kind = Operand::Kind::kTargets, .index = name.index});
  return true;
}

bool Parser::ParseCallList(std::vector<Operand>* list) {
  if (!Expect("(")) return false;
  if (Accept(")")) return true;
  do {
    Instruction holder;  // for the elements of a vector, each of which is an argument
    Operand operand;
    if (!ParseOperand(&holder, false, &operand)) return false;
    if (operand.kind == Operand::Kind::kVector) {
      list->insert(list->end(), holder.elements.begin(), holder.elements.end());
    } else {
      list->push_back(operand);
    }
    if (list->size() > kMaxOperands) return FailAt(peek().line, "too many arguments");
  } while (Accept(","));
  return Expect(")");
}

bool Parser::ParseCallee(Call* call) {
  const uint32_t line = peek().line;
  if (peek().kind != Token::Kind::kIdentifier) return FailHere("a function");
  Instruction holder;
  if (!ParseNamedOperand(&holder, &call->callee)) return false;
  const bool is_function = call->callee.kind == Operand::Kind::kSymbol &&
                           call->callee.symbol.kind == SymbolKind::kFunction;
  return is_function || call->callee.is_register() || FailAt(line, "a function is expected");
}

// What follows the arguments of an indirect call.
bool Parser::ParseCallSignature(Call* call) {
  const uint32_t line = peek().line;
  std::string_view text;
  Name name;
  if (!ExpectName(&text)) return false;
  if (Lookup(text, &name) && name.kind == Name::Kind::kPrototype) {
    call->prototype = name.index;
    return true;
  }
  if (Lookup(text, &name) && name.kind == Name::Kind::kCallTargets) {
    call->targets = name.index;
    return true;
  }
  return FailAt(line, Quoted(text) + " is neither a prototype nor a list of targets");
}

bool Parser::ParseCall(Instruction* instruction) {
  Call call;
  if (At("(") && (!ParseCallList(&call.returns) || !Expect(","))) return false;
  if (!ParseCallee(&call)) return false;
  bool more = Accept(",");
  if (more && At("(")) {
    if (!ParseCallList(&call.arguments)) return false;
    more = Accept(",");
  }
  if (more && !ParseCallSignature(&call)) return false;
  instruction->call = static_cast<uint32_t>(function().calls.size());
  function().calls.push_back(std::move(call));
  return true;
}

}  // namespace smolvm::emulation::ptx
