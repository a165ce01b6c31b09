// A kernel launch: what it asks for, the checks, and the packing of its parameters.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "host-daemon/emulation/api/module.h"
#include "host-daemon/emulation/device/stream.h"

namespace smolvm::emulation {

struct LaunchShape {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes = 0;
  bool cooperative = false;
};

// What a launch with attributes wants besides: events recorded when the kernel has ended.
struct LaunchExtras {
  bool cooperative = false;
  std::optional<int> priority;  // the stream's, when it is not given
  std::vector<CUevent> events;
};

// Checks dimensions, shared memory and, for a cooperative launch, that the whole grid fits the
// device.
CUresult CheckShape(const LaunchShape& shape, const Function& function);
// Packs `params` or `extra` (CU_LAUNCH_PARAM_*) as the kernel's parameter list says.
CUresult PackParams(const KernelInfo& info, void** params, void** extra,
                    std::vector<std::byte>* packed);
// Every attribute is honoured, is a hint, or is refused.
CUresult ReadLaunchAttributes(const CUlaunchConfig& config, LaunchExtras* extras);

// How many blocks of a kernel a multiprocessor holds at once. CUDA_ERROR_INVALID_VALUE when the
// block is too large.
CUresult ActiveBlocks(const KernelInfo& info, int block_threads, size_t dynamic_shared,
                      int* blocks);

}  // namespace smolvm::emulation
