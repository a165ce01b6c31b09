// From an input of cuLinkAddData to the PTX in it that this device runs.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host-daemon/emulation/image/linked_image.h"

namespace smolvm::emulation {

struct InputPtx {
  std::vector<NamedPtx> sources;
  // Of a library: taken only for what others lack, as linkers do.
  bool is_library = false;
  // Members of a library that hold nothing for this device, and why; they are left out.
  std::vector<std::string> left_out;
};

// Reads nothing outside `data`. CUDA_ERROR_INVALID_IMAGE: not what `type` says, or damaged.
// CUDA_ERROR_NO_BINARY_FOR_GPU: device code, but no PTX for this device. CUDA_ERROR_NOT_SUPPORTED:
// CU_JIT_INPUT_NVVM. `*error` says why. A host object without device code has no sources.
CUresult ReadLinkInput(CUjitInputType type, std::span<const std::byte> data, std::string_view name,
                       int compute_capability, InputPtx* input, std::string* error);

}  // namespace smolvm::emulation
