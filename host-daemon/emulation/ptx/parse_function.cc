// Functions: signatures, directives, bodies, labels and scopes. PTX ISA 9.0, 7 and 11.2 to 11.4.
#include <algorithm>
#include <utility>

#include "host-daemon/emulation/ptx/limits.h"
#include "host-daemon/emulation/ptx/parser.h"
#include "host-daemon/emulation/ptx/quote.h"

namespace smolvm::emulation::ptx {
namespace {

uint64_t AlignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

bool Parser::ParseFunction(Linkage linkage, bool is_entry) {
  Function function;
  function.linkage = linkage;
  function.is_entry = is_entry;
  function.line = peek().line;
  if (!ParseSignature(&function) || !ParseFunctionDirectives(&function)) return false;
  if (At("{")) function.has_body = true;
  uint32_t index;
  if (function.has_body) {
    return DeclareFunction(std::move(function), &index) && ParseBody(index);
  }
  return DeclareFunction(std::move(function), &index) && Expect(";");
}

bool Parser::ParseSignature(Function* function) {
  if (At(".attribute")) {
    Variable ignored;
    if (!ParseAttributes(&ignored)) return false;
  }
  if (At("(")) {
    if (function->is_entry) return FailHere("the kernel's name");
    if (!ParseParams(&function->returns, function, &function->return_bytes)) return false;
  }
  if (!ExpectName(&function->name)) return false;
  return !At("(") || ParseParams(&function->params, function, &function->param_bytes);
}

bool Parser::ParseParams(std::vector<Variable>* params, Function* function, uint64_t* bytes) {
  if (!Expect("(")) return false;
  *bytes = 0;
  if (Accept(")")) return true;
  do {
    Variable param;
    if (!ParseParam(function, &param)) return false;
    if (param.space == StateSpace::kReg) {
      AddRegisterParam(std::move(param), function, params);
    } else {
      params->push_back(std::move(param));
    }
  } while (Accept(","));
  for (Variable& param : *params) {
    param.offset = AlignUp(*bytes, param.alignment);
    *bytes = param.offset + param.bytes;
    if (*bytes > kMaxParamBytes) {
      return FailAt(param.line, "the parameters of a function take at most " +
                                    std::to_string(kMaxParamBytes) + " bytes");
    }
  }
  return Expect(")");
}

bool Parser::ParseParam(Function* function, Variable* param) {
  Declaration declaration;
  if (!ParseSpecifiers(&declaration)) return false;
  const StateSpace space = declaration.variable.space;
  if (space != StateSpace::kParam && (space != StateSpace::kReg || function->is_entry)) {
    return FailHere("a parameter");
  }
  if (!ParseDeclarator(declaration.variable, param)) return false;
  if (space != StateSpace::kReg) return true;
  return !param->is_array || FailAt(param->line, "a register cannot be an array");
}

// A vector is a parameter for each of its elements; the first one has its name and size.
void Parser::AddRegisterParam(Variable param, Function* function, std::vector<Variable>* params) {
  const Register reg{.prefix = param.name, .type = param.type};
  param.bytes = BytesOf(param.type);
  param.alignment = static_cast<uint32_t>(std::max<uint64_t>(param.bytes, 1));
  const uint8_t count = param.vector;
  for (uint8_t k = 0; k < count; ++k) {
    param.reg = static_cast<uint32_t>(function->registers.size());
    function->registers.push_back(reg);
    params->push_back(param);
    param.name = "_";
    param.vector = 1;
  }
}

bool Parser::ParseFunctionDirectives(Function* function) {
  while (peek().kind == Token::Kind::kDotWord) {
    if (At(".pragma")) {
      if (!ParsePragma(&function->pragmas)) return false;
      continue;
    }
    bool known = false;
    const Token word = peek();
    if (!ParseTuning(word.text, function, &known)) return false;
    if (!known) return FailHere("a performance-tuning directive or a body");
  }
  return true;
}

bool Parser::ParseTuning(std::string_view word, Function* function, bool* known) {
  *known = true;
  const auto number = [this](uint32_t* value) {
    Take();
    uint64_t count;
    if (!ExpectCount(UINT32_MAX, &count)) return false;
    *value = static_cast<uint32_t>(count);
    return true;
  };
  uint32_t ignored;
  if (word == ".reqntid") return Take(), ParseTriple(&function->required_block);
  if (word == ".maxntid") return Take(), ParseTriple(&function->max_block);
  if (word == ".reqnctapercluster") return Take(), ParseTriple(&function->required_cluster);
  if (word == ".minnctapersm") return number(&function->min_blocks_per_sm);
  if (word == ".maxnctapersm" || word == ".maxclusterrank") return number(&ignored);
  if (word == ".maxnreg") return number(&function->max_registers);
  if (word == ".abi_preserve" || word == ".abi_preserve_control") return number(&ignored);
  if (word == ".explicitcluster") return Take(), function->explicit_cluster = true;
  if (word == ".blocksareclusters") return Take(), true;
  if (word == ".noreturn") return Take(), function->noreturn = true;
  *known = false;
  return true;
}

// Dimensions that are left out are 1.
bool Parser::ParseTriple(std::array<uint32_t, 3>* triple) {
  *triple = {1, 1, 1};
  for (size_t i = 0; i < triple->size(); ++i) {
    uint64_t count;
    if (!ExpectCount(UINT32_MAX, &count)) return false;
    (*triple)[i] = static_cast<uint32_t>(count);
    if (!Accept(",")) break;
  }
  return true;
}

bool Parser::DeclareFunction(Function function, uint32_t* index) {
  const auto known = globals_.find(function.name);
  if (known == globals_.end()) {
    *index = static_cast<uint32_t>(module_->functions.size());
    globals_.emplace(function.name, Symbol{SymbolKind::kFunction, *index});
    module_->functions.push_back(std::move(function));
    return true;
  }
  *index = known->second.index;
  if (known->second.kind != SymbolKind::kFunction ||
      (function.has_body && module_->functions[*index].has_body)) {
    return Fail(Diagnostic::Code::kDuplicate, function.line,
                Quoted(function.name) + " is declared twice");
  }
  Function& earlier = module_->functions[*index];
  if (earlier.is_entry != function.is_entry || earlier.params.size() != function.params.size() ||
      earlier.returns.size() != function.returns.size()) {
    return FailAt(function.line, Quoted(function.name) + " is declared with another signature");
  }
  if (!function.has_body) return true;
  // A definition is as visible as its declaration said; ".extern" then ".visible" is common.
  if (function.linkage == Linkage::kNone && earlier.linkage != Linkage::kExtern) {
    function.linkage = earlier.linkage;
  }
  earlier = std::move(function);
  return true;
}

bool Parser::DeclareParams(SymbolKind kind, const std::vector<Variable>& params) {
  for (uint32_t i = 0; i < params.size(); ++i) {
    if (params[i].name == "_") continue;
    Name name{.kind = Name::Kind::kSymbol, .symbol = {kind, i}};
    if (params[i].space == StateSpace::kReg) {
      name = RegisterName(params[i].reg, params[i].vector);
    }
    if (!Declare(params[i].name, name, params[i].line)) return false;
  }
  return true;
}

bool Parser::OpenScope() {
  if (scopes_.size() > kMaxScopeDepth) return FailAt(peek().line, "scopes nested too deep");
  scopes_.emplace_back();
  pending_labels_.emplace_back();
  return true;
}

void Parser::SetLabel(const PendingLabel& pending, uint32_t label) {
  if (pending.in_targets) {
    function().branch_targets[pending.owner].labels[pending.slot] = label;
  } else {
    function().body[pending.owner].operands[pending.slot].index = label;
  }
}

// Labels that this scope has are found; the others are looked for in the one around it.
bool Parser::CloseScope() {
  std::vector<PendingLabel> pending = std::move(pending_labels_.back());
  const NameScope scope = std::move(scopes_.back());
  pending_labels_.pop_back();
  scopes_.pop_back();
  for (const PendingLabel& label : pending) {
    const Name* name = scope.Find(label.name);
    if (name != nullptr && name->kind == Name::Kind::kLabel) {
      SetLabel(label, name->index);
    } else if (name != nullptr || pending_labels_.empty()) {
      return FailAt(label.line, "unknown label " + Quoted(label.name));
    } else {
      pending_labels_.back().push_back(label);
    }
  }
  return true;
}

bool Parser::ParseBody(uint32_t index) {
  current_ = index;
  const size_t outer = scopes_.size();
  if (!OpenScope() || !DeclareParams(SymbolKind::kReturn, function().returns) ||
      !DeclareParams(SymbolKind::kParam, function().params)) {
    return false;
  }
  do {
    if (Accept("{")) {
      if (!OpenScope()) return false;
    } else if (Accept("}")) {
      if (!CloseScope()) return false;
    } else if (!ParseBodyStatement()) {
      return false;
    }
  } while (scopes_.size() > outer + 1);
  if (!CloseScope()) return false;
  EndBody();
  current_ = kNoIndex;
  return true;
}

// Control never runs off the end, and a label at the end has an instruction to point at.
void Parser::EndBody() {
  Function& f = function();
  const auto at_end = [&f](const Label& label) { return label.instruction == f.body.size(); };
  const bool falls_through =
      f.body.empty() || f.body.back().guarded() || !EndsBlock(f.body.back().opcode);
  if (!falls_through && std::ranges::none_of(f.labels, at_end)) return;
  Instruction ret;
  ret.opcode = Opcode::kRet;
  ret.text = "ret";
  ret.line = f.body.empty() ? f.line : f.body.back().line;
  f.body.push_back(ret);
}

bool Parser::ParseBodyStatement() {
  if (Accept(";")) return true;
  Instruction instruction;
  if (At("@")) {
    if (!ParseGuard(&instruction)) return false;
    if (peek().kind != Token::Kind::kIdentifier) return FailHere("an instruction");
  }
  if (peek().kind == Token::Kind::kDotWord) return ParseBodyDirective();
  if (peek().kind != Token::Kind::kIdentifier) return FailHere("a statement");
  const Token first = Take();
  if (!instruction.guarded() && Accept(":")) return ParseLabel(first);
  return ParseInstruction(first, std::move(instruction));
}

bool Parser::ParseBodyDirective() {
  bool ok;
  if (AcceptDebugDirective(&ok)) return ok;
  if (At(".pragma")) return ParsePragma(&function().pragmas);
  Linkage linkage;
  if (!ParseLinkage(&linkage)) return false;
  return ParseDeclaration(linkage);
}

bool Parser::ParseLabel(const Token& name) {
  if (Accept(".branchtargets")) return ParseBranchTargets(name.text);
  if (Accept(".calltargets")) return ParseCallTargets(name.text);
  if (Accept(".callprototype")) return ParsePrototype(name.text);
  Function& f = function();
  const auto index = static_cast<uint32_t>(f.labels.size());
  f.labels.push_back({name.text, static_cast<uint32_t>(f.body.size())});
  return Declare(name.text, {.kind = Name::Kind::kLabel, .index = index}, name.line);
}

bool Parser::ParseBranchTargets(std::string_view name) {
  Function& f = function();
  const auto index = static_cast<uint32_t>(f.branch_targets.size());
  const Name what{.kind = Name::Kind::kBranchTargets, .index = index};
  if (!Declare(name, what, peek().line)) return false;
  BranchTargets& targets = f.branch_targets.emplace_back();
  targets.name = name;
  do {
    const uint32_t line = peek().line;
    std::string_view label;
    if (!ExpectName(&label)) return false;
    const auto slot = static_cast<uint32_t>(targets.labels.size());
    pending_labels_.back().push_back({label, line, true, index, slot});
    targets.labels.push_back(kNoIndex);
  } while (Accept(","));
  return Expect(";");
}

bool Parser::ParseCallTargets(std::string_view name) {
  CallTargets targets;
  targets.name = name;
  const auto index = static_cast<uint32_t>(function().call_targets.size());
  if (!Declare(name, {.kind = Name::Kind::kCallTargets, .index = index}, peek().line)) return false;
  do {
    const uint32_t line = peek().line;
    std::string_view callee;
    if (!ExpectName(&callee)) return false;
    const auto found = globals_.find(callee);
    if (found == globals_.end() || found->second.kind != SymbolKind::kFunction) {
      return FailAt(line, "unknown function " + Quoted(callee));
    }
    targets.functions.push_back(found->second.index);
  } while (Accept(","));
  function().call_targets.push_back(std::move(targets));
  return Expect(";");
}

bool Parser::ParsePrototype(std::string_view name) {
  Prototype prototype;
  prototype.name = name;
  const auto index = static_cast<uint32_t>(function().prototypes.size());
  if (!Declare(name, {.kind = Name::Kind::kPrototype, .index = index}, peek().line)) return false;
  Function signature;  // its registers, if any, are nobody's
  uint64_t bytes;
  std::string_view ignored;
  in_prototype_ = true;
  if (At("(") && !ParseParams(&prototype.returns, &signature, &bytes)) return false;
  if (!ExpectName(&ignored)) return false;
  if (At("(") && !ParseParams(&prototype.params, &signature, &bytes)) return false;
  in_prototype_ = false;
  if (!ParseFunctionDirectives(&signature)) return false;
  prototype.noreturn = signature.noreturn;
  function().prototypes.push_back(std::move(prototype));
  return Expect(";");
}

}  // namespace smolvm::emulation::ptx
