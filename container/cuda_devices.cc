#include "container/cuda_devices.h"

#include <algorithm>
#include <stdexcept>

#include "container/text.h"

namespace smolvm::gpu {
namespace {

bool IsBareIndex(std::string_view token) {
  return !token.empty() &&
         std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Spells bare indices out, leaving every other token to the selector's own parser.
std::string SpellOutIndices(std::string_view text) {
  std::string spelled;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view token = Trim(text.substr(0, comma));
    if (IsBareIndex(token)) spelled += "nvidia:";
    spelled += token;
    if (comma == std::string_view::npos) return spelled;
    spelled += ',';
    text.remove_prefix(comma + 1);
  }
}

}  // namespace

CudaDevices ParseCudaDevices(std::string_view text) {
  return CudaDevicesOf(normalize_gpus(std::string_view(SpellOutIndices(text))));
}

CudaDevices CudaDevicesOf(const GpuSelector& selector) {
  if (selector.all()) return std::nullopt;
  for (GpuVendor vendor : {GpuVendor::kAmd, GpuVendor::kIntel}) {
    if (!selector.ChoiceFor(vendor)) continue;
    throw std::invalid_argument("'" + std::string(VendorName(vendor)) +
                                "' has no CUDA devices: accepted are 'all', 'nvidia', and device "
                                "indices such as 'nvidia:0'");
  }
  const std::optional<DeviceChoice> nvidia = selector.ChoiceFor(GpuVendor::kNvidia);
  return nvidia ? *nvidia : std::vector<std::uint32_t>();
}

}  // namespace smolvm::gpu
