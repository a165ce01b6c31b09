// The list of system calls that a sandboxed process may make (seccomp(2)).
#pragma once

#include <string>

#include "host-daemon/sandbox/sandbox.h"

namespace smolvm::sandbox {

// For this thread and all others. `has_landlock`: files are kept by Landlock, so that calls that
// name some may be let through where `needs` has a folder.
bool FilterCalls(const SandboxNeeds& needs, bool has_landlock, std::string* error);

}  // namespace smolvm::sandbox
