#pragma once

#include <string>
#include <vector>

namespace smolvm::machine {

// The environment of a machine's commands: defaults, then the image's, then `own` (of --env); later
// ones win. With `cuda_endpoint` not empty, what the CUDA library needs is there as well.
std::vector<std::string> BuildEnvironment(const std::vector<std::string>& image,
                                          const std::vector<std::string>& own,
                                          const std::string& cuda_endpoint);
// `base` with `own` on top.
std::vector<std::string> MergeEnvironment(std::vector<std::string> base,
                                          const std::vector<std::string>& own);

}  // namespace smolvm::machine
