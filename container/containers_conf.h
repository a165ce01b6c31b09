#pragma once

#include <optional>
#include <string>
#include <vector>

#include "container/host_root.h"

namespace smolvm::gpu {

// The `cdi_spec_dirs` of the `[engine]` table in the containers.conf files that apply, read as
// containers.conf(5) orders them: the distribution's, the administrator's and its drop-ins, the
// user's (not for root). CONTAINERS_CONF stands in for all of them and CONTAINERS_CONF_OVERRIDE
// comes last. nullopt when none sets it. A file that cannot be read or is not TOML counts as
// absent; podman itself refuses to start with it.
std::optional<std::vector<std::string>> ConfiguredCdiDirectories(const HostRoot& root);

}  // namespace smolvm::gpu
