// An image as a guest sends it: measured, split, its PTX selected, unpacked, parsed and linked.
#include <cstdint>
#include <span>

#include "host-daemon/emulation/image/load.h"
#include "protocol/image/image.h"
#include "protocol/image/kernel_params.h"
#include "protocol/image/variables.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  smolvm::image::MeasureImage(data, size);
  const auto flat = smolvm::image::FlatImage::Read(bytes);
  if (!flat) return 0;
  smolvm::image::ReadKernelParams(bytes);
  smolvm::image::VariableBytes(bytes);
  smolvm::emulation::JitLog log;
  smolvm::emulation::ptx::Module module;
  for (const int compute_capability : {75, 90, 120}) {
    smolvm::emulation::LoadModule(flat->image(), {.compute_capability = compute_capability}, &log,
                                  &module);
  }
  return 0;
}
