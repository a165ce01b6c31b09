#include "host-daemon/emulation/ptx/remap.h"

#include <numeric>

namespace smolvm::emulation::ptx {
namespace {

void Remap(const SymbolMap& map, Symbol* symbol) {
  if (symbol->index == kNoIndex) return;
  if (symbol->kind == SymbolKind::kVariable) symbol->index = map.variables[symbol->index];
  if (symbol->kind == SymbolKind::kFunction) symbol->index = map.functions[symbol->index];
}

void Remap(const SymbolMap& map, std::vector<Operand>* operands) {
  for (Operand& operand : *operands) Remap(map, &operand.symbol);
}

void Remap(const SymbolMap& map, std::vector<Variable>* variables) {
  for (Variable& variable : *variables) {
    for (Relocation& relocation : variable.relocations) Remap(map, &relocation.symbol);
  }
}

void Remap(const SymbolMap& map, Function* function) {
  for (Instruction& instruction : function->body) {
    Remap(map, &instruction.operands);
    Remap(map, &instruction.elements);
  }
  for (Call& call : function->calls) {
    Remap(map, &call.callee.symbol);
    Remap(map, &call.returns);
    Remap(map, &call.arguments);
  }
  for (CallTargets& targets : function->call_targets) {
    for (uint32_t& index : targets.functions) index = map.functions[index];
  }
  if (function->alias_of != kNoIndex) function->alias_of = map.functions[function->alias_of];
}

}  // namespace

SymbolMap IdentityMap(const Module& module) {
  SymbolMap map;
  map.variables.resize(module.variables.size());
  map.functions.resize(module.functions.size());
  std::iota(map.variables.begin(), map.variables.end(), 0);
  std::iota(map.functions.begin(), map.functions.end(), 0);
  return map;
}

void Remap(const SymbolMap& map, Module* module) {
  Remap(map, &module->variables);
  for (Function& function : module->functions) Remap(map, &function);
}

}  // namespace smolvm::emulation::ptx
