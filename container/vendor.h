#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::gpu {

// The GPU vendors whose devices can be handed to a container.
enum class GpuVendor { kNvidia, kAmd, kIntel };

// Every vendor, in canonical order: grants are sorted and arguments emitted in this order.
// The contract names of this folder (GPU_VENDORS, normalize_gpus, gpu_run_args …) keep their
// spelling.
inline constexpr std::array<GpuVendor, 3> GPU_VENDORS = {GpuVendor::kNvidia, GpuVendor::kAmd,
                                                         GpuVendor::kIntel};

// "nvidia", "amd" or "intel": the token that a selector uses.
constexpr std::string_view VendorName(GpuVendor vendor) {
  constexpr std::array<std::string_view, 3> kNames = {"nvidia", "amd", "intel"};
  return kNames[static_cast<std::size_t>(vendor)];
}

constexpr std::optional<GpuVendor> VendorFromName(std::string_view name) {
  for (GpuVendor vendor : GPU_VENDORS) {
    if (VendorName(vendor) == name) return vendor;
  }
  return std::nullopt;
}

// The device kind under which the vendor's tool declares its GPUs in CDI specs, such as
// "nvidia.com/gpu".
constexpr std::string_view CdiKind(GpuVendor vendor) {
  constexpr std::array<std::string_view, 3> kKinds = {"nvidia.com/gpu", "amd.com/gpu",
                                                      "intel.com/gpu"};
  return kKinds[static_cast<std::size_t>(vendor)];
}

// The vendor's PCI id as /sys/…/device/vendor spells it.
constexpr std::string_view PciVendorId(GpuVendor vendor) {
  constexpr std::array<std::string_view, 3> kIds = {"0x10de", "0x1002", "0x8086"};
  return kIds[static_cast<std::size_t>(vendor)];
}

// One device of a vendor (`index` is set), or all of them.
struct GpuGrant {
  GpuVendor vendor;
  std::optional<std::uint32_t> index;

  friend auto operator<=>(const GpuGrant&, const GpuGrant&) = default;
};

// What one vendor is asked for: nullopt is the whole fleet, otherwise ascending indices.
using DeviceChoice = std::optional<std::vector<std::uint32_t>>;

}  // namespace smolvm::gpu
