#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/selector.h"

namespace smolvm::gpu {

// Which CUDA devices a selector names, for code that shares them out (the daemon's `--gpus`, the
// remoting arguments). nullopt means every device there is; an empty list means none.
using CudaDevices = std::optional<std::vector<std::uint32_t>>;

// Accepts the grammar of normalize_gpus, and bare indices as a short form: "0,2" is
// "nvidia:0,nvidia:2". Ascending and unique. Throws std::invalid_argument for a malformed token,
// and for amd and intel, which have no CUDA devices.
CudaDevices ParseCudaDevices(std::string_view text);

// The same for a selector that is parsed already.
CudaDevices CudaDevicesOf(const GpuSelector& selector);

}  // namespace smolvm::gpu
