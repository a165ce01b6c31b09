// Prints docs/ptx.md.
#include <cstdio>

#include "host-daemon/emulation/codegen/compiler.h"
#include "host-daemon/emulation/ptx/table.h"

int main() {
  const std::string page =
      smolvm::emulation::ptx::OpcodePage(smolvm::emulation::codegen::IsTranslated);
  return fputs(page.c_str(), stdout) < 0 ? 1 : 0;
}
