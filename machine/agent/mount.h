// Mount helpers that throw machine::Failure.
#pragma once

#include <string>

#include "protocol/base/unique_fd.h"

namespace smolvm::agent {

void Mount(const char* source, const std::string& target, const char* type, unsigned long flags,
           const std::string& options = "");
// The same for what a machine can do without (a tiny image may lack even /sys): false on failure.
bool TryMount(const char* source, const std::string& target, const char* type, unsigned long flags,
              const std::string& options = "");
// A detached copy of the mount at `path`, to be put elsewhere after the root has changed.
UniqueFd DetachCopy(const std::string& path, bool read_only);
void Attach(const UniqueFd& tree, const std::string& target);
// Makes a folder and those above it.
void MakePath(const std::string& path);

}  // namespace smolvm::agent
