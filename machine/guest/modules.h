// Which kernel modules a machine loads, and in which order.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace smolvm::machine {

// What a machine may need; whatever these depend on comes with them.
const std::vector<std::string>& WantedModules();

// The `depends=` list of a module file's .modinfo section (modinfo(8)).
std::vector<std::string> ModuleDependencies(std::string_view module_file);

// Orders `wanted` with all they depend on, dependencies first. `depends` maps each module of the
// tree to what it depends on; one that is not there is taken to be built into the kernel.
std::vector<std::string> LoadOrder(const std::vector<std::string>& wanted,
                                   const std::map<std::string, std::vector<std::string>>& depends);

}  // namespace smolvm::machine
