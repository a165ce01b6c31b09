// The PTX front end on any text: parse, verify, link with itself, blocks.
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "host-daemon/emulation/ptx/cfg.h"
#include "host-daemon/emulation/ptx/link.h"
#include "host-daemon/emulation/ptx/parse.h"

namespace ptx = smolvm::emulation::ptx;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ptx::Module module;
  ptx::Diagnostic diagnostic;
  if (!ptx::Parse(text, &module, &diagnostic)) return 0;
  for (const ptx::Function& function : module.functions) {
    if (function.has_body) ptx::BuildCfg(function);
  }
  std::vector<ptx::LinkInput> inputs(2);
  inputs[0].module = module;
  inputs[1].module = std::move(module);
  ptx::Module linked;
  if (ptx::Link(std::move(inputs), &linked, &diagnostic)) {
    ptx::CheckResolved(
        linked, [](std::string_view) { return false; }, &diagnostic);
  }
  return 0;
}
