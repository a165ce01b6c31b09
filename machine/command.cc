#include "machine/command.h"

#include <cstdio>

namespace smolvm::machine {

int RunCommand(int, char**) {
  std::fputs("smolvm machine: not built yet\n", stderr);
  return 125;
}

}  // namespace smolvm::machine
