#include "container/command.h"

#include <cstdio>

namespace smolvm::gpu {

int RunCommand(int, char**) {
  std::fputs("smolvm gpu: not built yet\n", stderr);
  return 125;
}

}  // namespace smolvm::gpu
