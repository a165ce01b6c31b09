#include "host-daemon/emulation/ptx/scope.h"

#include <charconv>

#include "host-daemon/emulation/ptx/parser.h"
#include "host-daemon/emulation/ptx/quote.h"

namespace smolvm::emulation::ptx {

const Name* NameScope::Find(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? nullptr : &found->second;
}

const RegisterRange* NameScope::FindRange(std::string_view name, std::string_view* prefix,
                                          uint32_t* number) const {
  constexpr size_t kMostDigits = 10;  // of a 32-bit number
  if (ranges_.empty()) return nullptr;
  for (size_t digits = 1; digits <= kMostDigits && digits < name.size(); ++digits) {
    const size_t split = name.size() - digits;
    const char first = name[split];
    if (first < '0' || first > '9') break;
    if (first == '0' && digits > 1) continue;
    const auto found = ranges_.find(name.substr(0, split));
    if (found == ranges_.end()) continue;
    const auto [end, error] =
        std::from_chars(name.data() + split, name.data() + name.size(), *number);
    if (error != std::errc() || *number >= found->second.count) continue;
    *prefix = found->first;
    return &found->second;
  }
  return nullptr;
}

bool Parser::Declare(std::string_view name, const Name& what, uint32_t line) {
  if (scopes_.back().Add(name, what)) return true;
  return Fail(Diagnostic::Code::kDuplicate, line, Quoted(name) + " is declared twice");
}

bool Parser::Lookup(std::string_view name, Name* found) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const Name* known = scope->Find(name)) {
      *found = *known;
      return true;
    }
    Register reg;
    if (const RegisterRange* range = scope->FindRange(name, &reg.prefix, &reg.number)) {
      reg.type = range->type;
      *found = AddRegisters(reg, range->vector);
      scope->Add(name, *found);
      return true;
    }
  }
  const auto global = globals_.find(name);
  if (global == globals_.end()) return false;
  *found = {.kind = Name::Kind::kSymbol, .symbol = global->second};
  return true;
}

uint32_t Parser::AddRegister(Register reg) {
  function().registers.push_back(reg);
  return static_cast<uint32_t>(function().registers.size() - 1);
}

Name Parser::RegisterName(uint32_t index, uint32_t count) {
  const auto kind = count > 1 ? Name::Kind::kVectorRegister : Name::Kind::kRegister;
  return {.kind = kind, .index = index, .count = count};
}

Name Parser::AddRegisters(const Register& reg, uint32_t count) {
  const Name name = RegisterName(AddRegister(reg), count);
  for (uint32_t k = 1; k < count; ++k) AddRegister(reg);
  return name;
}

}  // namespace smolvm::emulation::ptx
