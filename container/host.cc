#include "container/host.h"

#include <cstdio>

namespace smolvm::gpu {

void Host::WarnOnStderr(std::string_view line) {
  std::fprintf(stderr, "smolvm gpu: warning: %.*s\n", static_cast<int>(line.size()), line.data());
}

}  // namespace smolvm::gpu
