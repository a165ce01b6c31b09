// A module: its header, its top-level statements, and what is resolved at its end.
#include "host-daemon/emulation/ptx/parse.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "host-daemon/emulation/ptx/limits.h"
#include "host-daemon/emulation/ptx/parser.h"
#include "host-daemon/emulation/ptx/quote.h"
#include "host-daemon/emulation/ptx/remap.h"
#include "host-daemon/emulation/ptx/verify.h"

namespace smolvm::emulation::ptx {
namespace {

bool ParseDecimal(std::string_view text, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

bool Parse(std::string_view text, Module* module, Diagnostic* diagnostic) {
  *module = Module();
  *diagnostic = Diagnostic();
  text = text.substr(0, text.find('\0'));
  if (text.size() > kMaxSourceBytes) {
    diagnostic->code = Diagnostic::Code::kTooLarge;
    diagnostic->message = "the PTX source is too large";
    return false;
  }
  auto source = std::make_shared<const std::string>(text);
  module->sources.push_back(source);
  Parser parser(*source, module, diagnostic);
  return parser.Run() && Verify(*module, diagnostic);
}

bool Parser::Accept(std::string_view text) {
  if (!At(text)) return false;
  Take();
  return true;
}

bool Parser::Expect(std::string_view text) { return Accept(text) || FailHere(Quoted(text)); }

bool Parser::ExpectName(std::string_view* name) {
  if (peek().kind != Token::Kind::kIdentifier) return FailHere("a name");
  *name = Take().text;
  return true;
}

bool Parser::ExpectCount(uint64_t most, uint64_t* value) {
  const uint32_t line = peek().line;
  int64_t count;
  if (!ParseInteger(&count)) return false;
  if (count < 0 || static_cast<uint64_t>(count) > most) {
    return FailAt(line, std::to_string(count) + " is out of range");
  }
  *value = static_cast<uint64_t>(count);
  return true;
}

bool Parser::Fail(Diagnostic::Code code, uint32_t line, std::string message) {
  if (diagnostic_->code != Diagnostic::Code::kNone) return false;  // the first one says why
  diagnostic_->code = code;
  diagnostic_->line = line;
  diagnostic_->message = "line " + std::to_string(line) + ": " + std::move(message);
  return false;
}

bool Parser::FailAt(uint32_t line, std::string message) {
  return Fail(Diagnostic::Code::kSyntax, line, std::move(message));
}

bool Parser::FailHere(std::string_view expected) {
  const Token& token = peek();
  switch (token.kind) {
    case Token::Kind::kBad:
      return FailAt(token.line, std::string(token.text));
    case Token::Kind::kEnd:
      return FailAt(token.line,
                    "unexpected end of the source (expected " + std::string(expected) + ")");
    default:
      return FailAt(token.line, "unexpected token " + Quoted(token.text) + " (expected " +
                                    std::string(expected) + ")");
  }
}

bool Parser::Run() {
  scopes_
      .emplace_back();  // module scope: only globals_ has names in it, and `.reg` is refused there
  if (!ParseHeader()) return false;
  while (peek().kind != Token::Kind::kEnd) {
    if (!ParseStatement()) return false;
  }
  return ResolveRelocations() && ResolveAliases();
}

bool Parser::ParseHeader() {
  bool ok = true;
  while (AcceptDebugDirective(&ok)) {
    if (!ok) return false;
  }
  if (!ParseVersion()) return false;
  while (AcceptDebugDirective(&ok)) {
    if (!ok) return false;
  }
  if (!ParseTarget()) return false;
  if (!Accept(".address_size")) return true;
  const uint32_t line = peek().line;
  uint64_t bits;
  if (!ExpectCount(64, &bits)) return false;
  return bits == 64 || FailAt(line, "only 64-bit addresses are supported");
}

bool Parser::ParseVersion() {
  if (!Expect(".version")) return false;
  const Token token = peek();
  const size_t point = token.text.find('.');
  int major = 0;
  int minor = 0;
  if (token.kind != Token::Kind::kFloat64 || point == std::string_view::npos ||
      !ParseDecimal(token.text.substr(0, point), &major) ||
      !ParseDecimal(token.text.substr(point + 1), &minor) || minor > 9 || major > 1000) {
    return FailHere("a version number");
  }
  Take();
  module_->version = major * 10 + minor;
  if (module_->version <= kNewestVersion) return true;
  return Fail(Diagnostic::Code::kUnsupportedVersion, token.line,
              "PTX ISA version " + std::string(token.text) + " is newer than " +
                  std::to_string(kNewestVersion / 10) + "." + std::to_string(kNewestVersion % 10) +
                  ", the newest supported");
}

bool Parser::ParseTarget() {
  if (!Expect(".target")) return false;
  do {
    const uint32_t line = peek().line;
    std::string_view name;
    if (!ExpectName(&name)) return false;
    if (name == "debug") {
      module_->debug = true;
    } else if (name.starts_with("sm_") || name.starts_with("compute_")) {
      std::string_view number = name.substr(name.find('_') + 1);
      if (number.ends_with('a') || number.ends_with('f')) {
        module_->target_suffix = number.back();
        number.remove_suffix(1);
      }
      constexpr int kOldest = 10;
      constexpr int kNewest = 130;
      if (!ParseDecimal(number, &module_->target) || module_->target < kOldest ||
          module_->target > kNewest) {
        return Fail(Diagnostic::Code::kUnsupportedTarget, line, "unknown target " + Quoted(name));
      }
    } else if (name != "texmode_unified" && name != "texmode_independent" &&
               name != "map_f64_to_f32") {
      return Fail(Diagnostic::Code::kUnsupportedTarget, line, "unknown target " + Quoted(name));
    }
  } while (Accept(","));
  return module_->target != 0 || FailHere("a target architecture");
}

bool Parser::AcceptDebugDirective(bool* ok) {
  *ok = true;
  if (At(".loc") || At(".file")) {
    lexer_.SkipLine();
  } else if (At(".section")) {
    *ok = SkipSection();
  } else if (At("@") && !in_function()) {  // "@@DWARF …"
    lexer_.SkipLine();
  } else {
    return false;
  }
  return true;
}

bool Parser::SkipSection() {
  while (!At("{")) {
    if (peek().kind == Token::Kind::kEnd || peek().kind == Token::Kind::kBad)
      return FailHere("'{'");
    Take();
  }
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

bool Parser::ParsePragma(std::vector<std::string_view>* pragmas) {
  Take();
  do {
    if (peek().kind != Token::Kind::kString) return FailHere("a string");
    pragmas->push_back(Take().text);
  } while (Accept(","));
  return Expect(";");
}

bool Parser::ParseLinkage(Linkage* linkage) {
  *linkage = Linkage::kNone;
  constexpr std::pair<std::string_view, Linkage> kWords[] = {{".extern", Linkage::kExtern},
                                                             {".visible", Linkage::kVisible},
                                                             {".weak", Linkage::kWeak},
                                                             {".common", Linkage::kCommon}};
  for (const auto& [word, value] : kWords) {
    if (!At(word)) continue;
    Take();
    *linkage = value;
    for (const auto& [second, unused] : kWords) {
      if (At(second)) return FailHere("one linking directive");
    }
  }
  return true;
}

bool Parser::ParseStatement() {
  bool ok;
  if (AcceptDebugDirective(&ok)) return ok;
  if (Accept(";")) return true;
  if (At(".pragma")) {
    std::vector<std::string_view> ignored;  // pragmas outside functions concern the assembler
    return ParsePragma(&ignored);
  }
  if (Accept(".alias")) return ParseAlias();
  Linkage linkage;
  if (!ParseLinkage(&linkage)) return false;
  if (Accept(".entry")) return ParseFunction(linkage, true);
  if (Accept(".func")) return ParseFunction(linkage, false);
  if (peek().kind != Token::Kind::kDotWord) return FailHere("a directive");
  return ParseDeclaration(linkage);
}

bool Parser::ParseAlias() {
  Alias alias;
  alias.line = peek().line;
  if (!ExpectName(&alias.name) || !Expect(",") || !ExpectName(&alias.target)) return false;
  aliases_.push_back(alias);
  return Expect(";");
}

bool Parser::ResolveRelocations() {
  for (const PendingRelocation& pending : pending_relocations_) {
    const auto found = globals_.find(pending.name);
    if (found == globals_.end()) {
      return FailAt(pending.line, "unknown symbol " + Quoted(pending.name));
    }
    module_->variables[pending.variable].relocations[pending.relocation].symbol = found->second;
  }
  return true;
}

// ".alias f, g" makes f a name of g's body. The function f stays, without a body and unused.
bool Parser::ResolveAliases() {
  if (aliases_.empty()) return true;
  SymbolMap map = IdentityMap(*module_);
  for (const Alias& alias : aliases_) {
    const auto name = globals_.find(alias.name);
    const auto target = globals_.find(alias.target);
    if (name == globals_.end() || name->second.kind != SymbolKind::kFunction ||
        target == globals_.end() || target->second.kind != SymbolKind::kFunction) {
      return FailAt(alias.line, "'.alias' takes two functions");
    }
    const Function& body = module_->functions[target->second.index];
    if (!body.has_body || module_->functions[name->second.index].has_body) {
      return FailAt(alias.line, "'.alias' takes a declared and a defined function");
    }
    map.functions[name->second.index] = target->second.index;
    module_->functions[name->second.index].alias_of = target->second.index;
  }
  Remap(map, module_);
  return true;
}

}  // namespace smolvm::emulation::ptx
