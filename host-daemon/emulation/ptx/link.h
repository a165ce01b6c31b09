// Several PTX modules into one: relocatable device code and cuLink*.
//
// Source: PTX ISA 9.0, 11.6 (Linking Directives).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"
#include "host-daemon/emulation/ptx/parse.h"

namespace smolvm::emulation::ptx {

struct LinkInput {
  std::string name;  // for messages
  Module module;
};

// Resolves .extern against .visible, .weak and .common: a .visible definition wins over a .weak
// one, and that over a .common one, the largest of which is kept; of equals the first. Symbols
// without a directive stay private to their module, so that names in the result may occur twice
// (kernels aside). The result is verified.
//
// What nothing defines stays .extern: see CheckResolved().
bool Link(std::vector<LinkInput> inputs, Module* module, Diagnostic* diagnostic);

// Fails with kUnresolved when something that the module uses is defined nowhere. Dynamic shared
// memory (".extern .shared x[]") needs no definition, nor do functions for which `is_builtin` is
// true (vprintf …).
bool CheckResolved(const Module& module, const std::function<bool(std::string_view)>& is_builtin,
                   Diagnostic* diagnostic);

}  // namespace smolvm::emulation::ptx
