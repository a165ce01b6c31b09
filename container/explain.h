#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/host.h"

namespace smolvm::gpu {

// Why a container did not start, as far as its GPUs are the reason: what the host's CDI specs say
// of the devices and paths that podman's stderr names, and the hint that fits. nullopt when it does
// not look like a GPU matter. `passed`: the words that the launcher gave podman, if it is known.
std::optional<std::string> ExplainLaunchError(std::string_view podman_stderr, const Host& host,
                                              const std::vector<std::string>& passed = {});

}  // namespace smolvm::gpu
