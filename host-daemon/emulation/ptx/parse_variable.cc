// Declarations of variables and registers, and initialisers. PTX ISA 9.0, 5.2 to 5.4.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "host-daemon/emulation/ptx/limits.h"
#include "host-daemon/emulation/ptx/parser.h"
#include "host-daemon/emulation/ptx/quote.h"

namespace smolvm::emulation::ptx {
namespace {

constexpr std::pair<std::string_view, StateSpace> kSpaces[] = {
    {".reg", StateSpace::kReg},       {".const", StateSpace::kConst},
    {".global", StateSpace::kGlobal}, {".local", StateSpace::kLocal},
    {".param", StateSpace::kParam},   {".shared", StateSpace::kShared},
    {".tex", StateSpace::kTex}};

bool FindSpace(std::string_view word, StateSpace* space) {
  for (const auto& [name, value] : kSpaces) {
    if (word == name) return *space = value, true;
  }
  return false;
}

bool IsOpaque(Type type) {
  return type == Type::kTexref || type == Type::kSamplerref || type == Type::kSurfref;
}

}  // namespace

bool Parser::ParseAlignment(uint32_t* alignment) {
  const uint32_t line = peek().line;
  uint64_t value;
  if (!ExpectCount(kMaxAlignment, &value)) return false;
  if (!std::has_single_bit(value)) return FailAt(line, "an alignment is a power of two");
  *alignment = static_cast<uint32_t>(value);
  return true;
}

// ".ptr.global.align 4" says where a kernel's pointer points; nothing depends on it.
bool Parser::ParsePointerAttributes() {
  uint32_t ignored;
  StateSpace space;
  if (peek().kind == Token::Kind::kDotWord && FindSpace(peek().text, &space)) Take();
  return !Accept(".align") || ParseAlignment(&ignored);
}

bool Parser::ParseAttributes(Variable* variable) {
  Take();
  if (!Expect("(")) return false;
  do {
    if (Accept(".managed")) {
      variable->is_managed = true;
    } else if (Accept(".unified")) {
      int64_t ignored;
      if (!Expect("(") || !ParseInteger(&ignored) || !Expect(",") || !ParseInteger(&ignored) ||
          !Expect(")")) {
        return false;
      }
    } else {
      return FailHere("an attribute");
    }
  } while (Accept(","));
  return Expect(")");
}

bool Parser::ParseSpecifiers(Declaration* declaration) {
  Variable& v = declaration->variable;
  v.line = peek().line;
  if (peek().kind != Token::Kind::kDotWord || !FindSpace(peek().text, &v.space)) {
    return FailHere("a state space");
  }
  Take();
  while (peek().kind == Token::Kind::kDotWord) {
    const std::string_view word = peek().text.substr(1);
    if (word == "align") {
      Take();
      if (!ParseAlignment(&v.alignment)) return false;
      declaration->has_alignment = true;
    } else if (word == "ptr") {
      Take();
      if (!ParsePointerAttributes()) return false;
    } else if (word == "attribute") {
      if (!ParseAttributes(&v)) return false;
    } else if ((word == "v2" || word == "v4" || word == "v8") && v.vector == 1) {
      v.vector = static_cast<uint8_t>(Take().text[2] - '0');
    } else if (!declaration->has_type && FindType(word, &v.type)) {
      Take();
      declaration->has_type = true;
    } else {
      return FailHere("a type or a name");
    }
  }
  if (!declaration->has_type) return FailHere("a type");
  if (v.type == Type::kPred && v.space != StateSpace::kReg) {
    return FailAt(v.line, "only registers can be predicates");
  }
  if (!declaration->has_alignment) {
    v.alignment = static_cast<uint32_t>(BytesOf(v.type)) * v.vector;
    if (!std::has_single_bit(v.alignment)) v.alignment = 1;
  }
  return true;
}

bool Parser::ParseDeclaration(Linkage linkage) {
  Declaration declaration;
  declaration.variable.linkage = linkage;
  if (!ParseSpecifiers(&declaration)) return false;
  const Variable& prototype = declaration.variable;
  if (prototype.space == StateSpace::kReg) {
    if (!in_function()) return FailAt(prototype.line, "registers are declared in functions");
    return ParseRegisterNames(prototype);
  }
  if (prototype.space == StateSpace::kParam && !in_function()) {
    return FailAt(prototype.line, "parameters are declared in functions");
  }
  do {
    Variable variable;
    if (!ParseDeclarator(prototype, &variable)) return false;
  } while (Accept(","));
  return Expect(";");
}

bool Parser::ParseRegisterNames(const Variable& prototype) {
  do {
    const uint32_t line = peek().line;
    std::string_view name;
    if (!ExpectName(&name)) return false;
    const bool declared = At("<") ? DeclareRegisterRange(name, prototype, line)
                                  : DeclareRegister(name, prototype, line);
    if (!declared) return false;
  } while (Accept(","));
  return Expect(";");
}

bool Parser::DeclareRegisterRange(std::string_view prefix, const Variable& prototype,
                                  uint32_t line) {
  Take();
  // A single ">" would be taken for an operator by the expression parser: the count is a literal.
  if (peek().kind != Token::Kind::kInteger) return FailHere("the number of registers");
  const uint64_t count = Take().value;
  if (!Expect(">")) return false;
  if (count > UINT32_MAX) return FailAt(line, "too many registers");
  const RegisterRange range{prototype.type, static_cast<uint32_t>(count), prototype.vector};
  if (scopes_.back().AddRange(prefix, range)) return true;
  return Fail(Diagnostic::Code::kDuplicate, line,
              "registers " + Quoted(prefix) + " are declared twice");
}

bool Parser::DeclareRegister(std::string_view name, const Variable& prototype, uint32_t line) {
  const Register reg{.prefix = name, .type = prototype.type};
  return Declare(name, AddRegisters(reg, prototype.vector), line);
}

// Dimensions, as bytes from one element to the next, outermost first; the last is the element
// itself.
bool Parser::ParseDimensions(Variable* variable, std::vector<uint64_t>* strides) {
  std::vector<uint64_t> counts;
  const uint32_t line = peek().line;
  while (Accept("[")) {
    variable->is_array = true;
    uint64_t count = 0;
    if (At("]")) {
      if (!counts.empty()) return FailHere("a size");
      variable->is_unsized = true;
    } else if (!ExpectCount(kMaxVariableBytes, &count)) {
      return false;
    }
    if (!Expect("]")) return false;
    counts.push_back(count);
    if (counts.size() > kMaxDimensions) return FailAt(line, "too many dimensions");
  }
  if (variable->vector > 1) counts.push_back(variable->vector);
  uint64_t bytes = BytesOf(variable->type);
  strides->assign(1, bytes);
  for (auto count = counts.rbegin(); count != counts.rend(); ++count) {
    if (__builtin_mul_overflow(bytes, *count, &bytes) || bytes > kMaxVariableBytes) {
      return FailAt(line, Quoted(variable->name) + " is too large");
    }
    strides->insert(strides->begin(), bytes);
  }
  variable->bytes = bytes;
  return true;
}

// Declares the variable too, unless it is a parameter of a function (`param` of ParseParam).
bool Parser::ParseDeclarator(const Variable& prototype, Variable* variable) {
  *variable = prototype;
  variable->line = peek().line;
  if (!ExpectName(&variable->name)) return false;
  std::vector<uint64_t> strides;
  const bool is_signature = prototype.space == StateSpace::kReg ||
                            (prototype.space == StateSpace::kParam && !in_function_body());
  if (!is_signature && At("<")) return FailHere("one variable at a time");
  if (!ParseDimensions(variable, &strides)) return false;
  if (is_signature) return true;
  const bool has_initializer = At("=");
  variable->has_initializer = has_initializer;
  uint32_t index;
  if (!DeclareVariable(std::move(*variable), &index)) return false;
  if (!has_initializer) return true;
  Take();
  return ParseInitializer(std::move(strides), index);
}

// `index`: in the module's variables, or in the function's.
bool Parser::DeclareVariable(Variable variable, uint32_t* index) {
  const uint32_t line = variable.line;
  const std::string_view name = variable.name;
  const bool is_static = variable.space == StateSpace::kGlobal ||
                         variable.space == StateSpace::kConst || variable.space == StateSpace::kTex;
  if (variable.has_initializer && !is_static) {
    return FailAt(line, "only .global and .const variables have initialisers");
  }
  if (in_function() && !is_static && variable.linkage != Linkage::kExtern) {
    *index = static_cast<uint32_t>(function().variables.size());
    function().variables.push_back(std::move(variable));
    return Declare(name, {.kind = Name::Kind::kSymbol, .symbol = {SymbolKind::kLocal, *index}},
                   line);
  }
  *index = static_cast<uint32_t>(module_->variables.size());
  const Symbol symbol{SymbolKind::kVariable, *index};
  if (in_function()) {
    module_->variables.push_back(std::move(variable));
    return Declare(name, {.kind = Name::Kind::kSymbol, .symbol = symbol}, line);
  }
  const auto [known, is_new] = globals_.emplace(name, symbol);
  if (is_new) {
    module_->variables.push_back(std::move(variable));
    return true;
  }
  // A declaration may be followed by the definition, or by another declaration.
  *index = known->second.index;
  if (known->second.kind == SymbolKind::kVariable) {
    Variable& earlier = module_->variables[*index];
    if (variable.linkage == Linkage::kExtern && variable.space == earlier.space) return true;
    if (earlier.linkage == Linkage::kExtern && variable.space == earlier.space) {
      earlier = std::move(variable);
      return true;
    }
  }
  return Fail(Diagnostic::Code::kDuplicate, line, Quoted(name) + " is declared twice");
}

bool Parser::SkipInitializer() {
  if (!At("{")) return FailHere("'{'");
  size_t depth = 0;
  do {
    if (peek().kind == Token::Kind::kEnd || peek().kind == Token::Kind::kBad)
      return FailHere("'}'");
    if (At("{")) ++depth;
    if (At("}")) --depth;
    Take();
  } while (depth > 0);
  return true;
}

bool Parser::ParseInitializer(std::vector<uint64_t> strides, uint32_t variable) {
  Variable& v = module_->variables[variable];
  if (v.linkage == Linkage::kExtern)
    return FailAt(v.line, "an external variable is defined elsewhere");
  if (IsOpaque(v.type)) return SkipInitializer();  // sampler settings: read when textures are
  if (!At("{")) {
    if (strides.size() > 1) return FailHere("'{'");
    return ParseInitializerValue(0, variable);
  }
  if (strides.size() == 1) strides.insert(strides.begin(), strides[0]);  // "x = {5}"
  uint64_t end = 0;
  const Extent extent{0, v.is_unsized ? kMaxVariableBytes : v.bytes};
  if (!ParseInitializerList(strides, 0, extent, variable, &end)) return false;
  if (v.is_unsized) {
    v.is_unsized = false;
    v.bytes = (end + strides[1] - 1) / std::max<uint64_t>(strides[1], 1) * strides[1];
  }
  return true;
}

// Values in a list fill the extent in order; a nested list fills the next element of its level.
bool Parser::ParseInitializerList(const std::vector<uint64_t>& strides, size_t level, Extent extent,
                                  uint32_t variable, uint64_t* end) {
  Take();  // "{"
  const uint64_t element = strides.back();
  uint64_t cursor = extent.begin;
  while (!Accept("}")) {
    const uint32_t line = peek().line;
    if (At("{")) {
      if (level + 2 >= strides.size()) return FailHere("a value");
      const uint64_t inner = strides[level + 1];
      if (inner == 0) return FailHere("a value");
      cursor = extent.begin + (cursor - extent.begin + inner - 1) / inner * inner;
      if (inner > extent.end - std::min(cursor, extent.end)) return FailAt(line, "too many values");
      uint64_t ignored = 0;
      const Extent nested{cursor, cursor + inner};
      if (!ParseInitializerList(strides, level + 1, nested, variable, &ignored)) return false;
      cursor += inner;
    } else {
      if (element > extent.end - std::min(cursor, extent.end))
        return FailAt(line, "too many values");
      if (!ParseInitializerValue(cursor, variable)) return false;
      cursor += element;
    }
    if (At("}")) continue;
    if (!Expect(",")) return false;
  }
  *end = cursor;
  return true;
}

bool Parser::ParseInitializerValue(uint64_t offset, uint32_t variable) {
  constexpr uint64_t kWholeAddress = UINT64_MAX;
  if (peek().kind == Token::Kind::kIdentifier && !At("WARP_SZ")) {
    return ParseInitializerSymbol(offset, kWholeAddress, variable);
  }
  const uint32_t line = peek().line;
  Constant constant;
  if (!ParseConstant(&constant)) return false;
  if (Accept("(")) {  // "0xFF00(symbol)"
    return ParseInitializerSymbol(offset, constant.bits, variable) && Expect(")");
  }
  const Type type = module_->variables[variable].type;
  const Operand value{.kind = constant.kind, .bits = constant.bits};
  if (constant.kind == Operand::Kind::kInteger && IsFloat(type)) {
    return FailAt(line, "a floating-point value is expected");
  }
  if (constant.kind == Operand::Kind::kFloat64 && !IsFloat(type) && BitsOf(type) != 64) {
    return FailAt(line, "an integer is expected");
  }
  return StoreInitial(offset, ImmediateBits(value, type), BytesOf(type), variable);
}

// "symbol", "generic(symbol)", either with "+ constant".
bool Parser::ParseInitializerSymbol(uint64_t offset, uint64_t mask, uint32_t variable) {
  const Type type = module_->variables[variable].type;
  const uint32_t line = peek().line;
  if (!IsInteger(type) && !IsBits(type)) return FailAt(line, "an address in a float");
  if (mask == 0) return FailAt(line, "the mask is empty");
  Relocation relocation{};
  relocation.offset = offset;
  relocation.bytes = static_cast<uint8_t>(std::min<size_t>(BytesOf(type), 8));
  relocation.shift = mask == UINT64_MAX ? 0 : static_cast<uint8_t>(std::countr_zero(mask));
  if (BytesOf(type) < 4 && mask == UINT64_MAX) return FailAt(line, "an address does not fit here");
  std::string_view name;
  if (!ExpectName(&name)) return false;
  if (name == "generic" && Accept("(")) {
    relocation.is_generic = true;
    if (!ExpectName(&name) || !Expect(")")) return false;
  }
  while (At("+") || At("-")) {
    if (!ParseOffset(&relocation.addend)) return false;
  }
  auto& relocations = module_->variables[variable].relocations;
  pending_relocations_.push_back({name, line, variable, relocations.size()});
  relocations.push_back(relocation);
  return StoreInitial(offset, 0, BytesOf(type), variable);
}

bool Parser::StoreInitial(uint64_t offset, uint64_t bits, size_t bytes, uint32_t variable) {
  Variable& v = module_->variables[variable];
  const uint64_t end = offset + bytes;
  if (end > v.initial.size()) {
    initial_bytes_ += end - v.initial.size();
    if (initial_bytes_ > kMaxInitialBytes) {
      return Fail(Diagnostic::Code::kTooLarge, peek().line, "the initialisers are too large");
    }
    v.initial.resize(end);
  }
  memcpy(v.initial.data() + offset, &bits, std::min(bytes, sizeof(bits)));
  return true;
}

}  // namespace smolvm::emulation::ptx
