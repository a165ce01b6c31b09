#include "host-daemon/emulation/ptx/link.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "host-daemon/emulation/ptx/quote.h"
#include "host-daemon/emulation/ptx/remap.h"
#include "host-daemon/emulation/ptx/verify.h"

namespace smolvm::emulation::ptx {
namespace {

enum class Strength { kDeclared, kCommon, kWeak, kStrong };

bool IsDynamicShared(const Variable& variable) {
  return variable.space == StateSpace::kShared && variable.is_unsized;
}

bool IsPrivate(const Variable& variable) {
  return variable.linkage == Linkage::kNone || IsDynamicShared(variable);
}
// Kernels are found by name, so all of them are public.
bool IsPrivate(const Function& function) {
  return function.linkage == Linkage::kNone && !function.is_entry;
}

Strength StrengthOf(Linkage linkage) {
  switch (linkage) {
    case Linkage::kExtern:
      return Strength::kDeclared;
    case Linkage::kCommon:
      return Strength::kCommon;
    case Linkage::kWeak:
      return Strength::kWeak;
    default:
      return Strength::kStrong;
  }
}
Strength StrengthOf(const Variable& variable) { return StrengthOf(variable.linkage); }
Strength StrengthOf(const Function& function) {
  const bool is_defined = function.has_body || function.alias_of != kNoIndex;
  return is_defined ? StrengthOf(function.linkage) : Strength::kDeclared;
}

class Linker {
 public:
  Linker(std::vector<LinkInput> inputs, Module* module, Diagnostic* diagnostic)
      : inputs_(std::move(inputs)), module_(module), diagnostic_(diagnostic) {}

  bool Run() {
    maps_.resize(inputs_.size());
    for (uint32_t i = 0; i < inputs_.size(); ++i) {
      Module& input = inputs_[i].module;
      module_->version = std::max(module_->version, input.version);
      if (input.target > module_->target) {
        module_->target = input.target;
        module_->target_suffix = input.target_suffix;
      }
      module_->debug = module_->debug || input.debug;
      std::ranges::move(input.sources, std::back_inserter(module_->sources));
      maps_[i].variables.resize(input.variables.size());
      maps_[i].functions.resize(input.functions.size());
      if (!Enter(input.variables, i, &variables_, &maps_[i].variables) ||
          !Enter(input.functions, i, &functions_, &maps_[i].functions)) {
        return false;
      }
    }
    for (uint32_t i = 0; i < inputs_.size(); ++i) Remap(maps_[i], &inputs_[i].module);
    Collect(variables_, &Module::variables);
    Collect(functions_, &Module::functions);
    return Verify(*module_, diagnostic_);
  }

 private:
  // Where the chosen definition of an item of the result is.
  struct Choice {
    uint32_t input;
    uint32_t index;
  };
  struct Table {
    std::vector<Choice> chosen;  // by index in the result
    std::unordered_map<std::string_view, uint32_t> by_name;
  };

  template <typename Item>
  bool Enter(const std::vector<Item>& items, uint32_t input, Table* table,
             std::vector<uint32_t>* map) {
    for (uint32_t index = 0; index < items.size(); ++index) {
      const auto next = static_cast<uint32_t>(table->chosen.size());
      (*map)[index] = next;
      if (!IsPrivate(items[index])) {
        const auto [known, is_new] = table->by_name.emplace(items[index].name, next);
        if (!is_new) {
          (*map)[index] = known->second;
          if (!Choose(items[index], {input, index}, &table->chosen[known->second])) return false;
          continue;
        }
      }
      table->chosen.push_back({input, index});
    }
    return true;
  }

  const Variable& At(const Choice& choice, const Variable* /*kind*/) const {
    return inputs_[choice.input].module.variables[choice.index];
  }
  const Function& At(const Choice& choice, const Function* /*kind*/) const {
    return inputs_[choice.input].module.functions[choice.index];
  }

  static bool IsSameKind(const Variable& a, const Variable& b) { return a.space == b.space; }
  static bool IsSameKind(const Function& a, const Function& b) { return a.is_entry == b.is_entry; }
  static bool IsLarger(const Variable& a, const Variable& b) { return a.bytes > b.bytes; }
  static bool IsLarger(const Function&, const Function&) { return false; }

  template <typename Item>
  bool Choose(const Item& item, Choice candidate, Choice* chosen) {
    const Item& earlier = At(*chosen, &item);
    const Strength strength = StrengthOf(item);
    const Strength earlier_strength = StrengthOf(earlier);
    if (!IsSameKind(item, earlier)) return Fail(item, candidate, *chosen, "declared differently");
    if (strength == Strength::kStrong && earlier_strength == Strength::kStrong) {
      return Fail(item, candidate, *chosen, "defined twice");
    }
    const bool larger_common = strength == Strength::kCommon && IsLarger(item, earlier);
    if (strength > earlier_strength || (strength == earlier_strength && larger_common)) {
      *chosen = candidate;
    }
    return true;
  }

  template <typename Item>
  bool Fail(const Item& item, Choice here, Choice there, std::string_view what) {
    diagnostic_->code = Diagnostic::Code::kDuplicate;
    diagnostic_->line = item.line;
    diagnostic_->message = Quoted(item.name) + " is ";
    diagnostic_->message += what;
    diagnostic_->message += ", in " + Quoted(inputs_[here.input].name) + " line " +
                            std::to_string(item.line) + " and in " +
                            Quoted(inputs_[there.input].name);
    return false;
  }

  template <typename Item>
  void Collect(const Table& table, std::vector<Item> Module::*member) {
    for (const Choice& choice : table.chosen) {
      (module_->*member).push_back(std::move((inputs_[choice.input].module.*member)[choice.index]));
    }
  }

  std::vector<LinkInput> inputs_;
  Module* module_;
  Diagnostic* diagnostic_;
  std::vector<SymbolMap> maps_;  // by input: old index to the result's
  Table variables_;
  Table functions_;
};

struct Uses {
  std::vector<bool> variables;
  std::vector<bool> functions;

  void Add(const Symbol& symbol) {
    if (symbol.index == kNoIndex) return;
    if (symbol.kind == SymbolKind::kVariable) variables[symbol.index] = true;
    if (symbol.kind == SymbolKind::kFunction) functions[symbol.index] = true;
  }
};

Uses FindUses(const Module& module) {
  Uses uses{std::vector<bool>(module.variables.size()), std::vector<bool>(module.functions.size())};
  for (const Variable& variable : module.variables) {
    for (const Relocation& relocation : variable.relocations) uses.Add(relocation.symbol);
  }
  for (const Function& function : module.functions) {
    for (const Instruction& instruction : function.body) {
      for (const Operand& operand : instruction.operands) uses.Add(operand.symbol);
      for (const Operand& operand : instruction.elements) uses.Add(operand.symbol);
    }
    for (const Call& call : function.calls) uses.Add(call.callee.symbol);
    for (const CallTargets& targets : function.call_targets) {
      for (const uint32_t index : targets.functions) uses.functions[index] = true;
    }
  }
  return uses;
}

bool FailUnresolved(std::string_view name, uint32_t line, Diagnostic* diagnostic) {
  diagnostic->code = Diagnostic::Code::kUnresolved;
  diagnostic->line = line;
  diagnostic->message = "undefined reference to " + Quoted(name);
  return false;
}

}  // namespace

bool Link(std::vector<LinkInput> inputs, Module* module, Diagnostic* diagnostic) {
  *module = Module();
  *diagnostic = Diagnostic();
  return Linker(std::move(inputs), module, diagnostic).Run();
}

bool CheckResolved(const Module& module, const std::function<bool(std::string_view)>& is_builtin,
                   Diagnostic* diagnostic) {
  const Uses uses = FindUses(module);
  for (size_t i = 0; i < module.variables.size(); ++i) {
    const Variable& variable = module.variables[i];
    if (variable.linkage == Linkage::kExtern && !IsDynamicShared(variable) && uses.variables[i]) {
      return FailUnresolved(variable.name, variable.line, diagnostic);
    }
  }
  for (size_t i = 0; i < module.functions.size(); ++i) {
    const Function& function = module.functions[i];
    if (!function.has_body && function.alias_of == kNoIndex && uses.functions[i] &&
        !is_builtin(function.name)) {
      return FailUnresolved(function.name, function.line, diagnostic);
    }
  }
  return true;
}

}  // namespace smolvm::emulation::ptx
