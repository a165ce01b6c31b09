// An input of cuLinkAddData as a guest sends it: its type in the first byte, then its bytes. What
// links is loaded again.
#include <cstdint>
#include <span>
#include <vector>

#include "host-daemon/emulation/image/linker.h"
#include "host-daemon/emulation/image/load.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const auto type = static_cast<CUjitInputType>(data[0] % (CU_JIT_NUM_INPUT_TYPES + 1));
  const auto linker = smolvm::emulation::Linker::Make({});
  smolvm::emulation::JitLog log;
  linker->Add(type, std::as_bytes(std::span(data + 1, size - 1)), "input", &log);
  std::vector<std::byte> image;
  if (linker->Complete(&log, &image) != CUDA_SUCCESS) return 0;
  smolvm::emulation::ptx::Module module;
  if (smolvm::emulation::LoadModule(image.data(), {}, &log, &module) != CUDA_SUCCESS)
    __builtin_trap();  // what the linker has made must load
  return 0;
}
