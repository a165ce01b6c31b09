// Renumbering of a module's variables and functions, for aliases and for linking.
#pragma once

#include <cstdint>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

struct SymbolMap {
  std::vector<uint32_t> variables;  // old index to new
  std::vector<uint32_t> functions;
};
SymbolMap IdentityMap(const Module& module);

// Applies the map to every reference in the module: operands, calls, call targets and initialisers.
void Remap(const SymbolMap& map, Module* module);

}  // namespace smolvm::emulation::ptx
