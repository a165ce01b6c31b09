#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/host_root.h"
#include "container/vendor.h"

namespace smolvm::gpu {

// One DRM render node of a vendor.
struct RenderNode {
  std::string address;  // its PCI address, or the node's own name where sysfs does not tell
  std::string path;     // "/dev/dri/renderD128"
  bool present;         // whether `path` exists: sysfs shows nodes that this /dev may lack
  // "/dev/dri/by-path/pci-<address>-render", where that link exists.
  std::optional<std::string> by_path;
};

// The vendor's render nodes, ordered by PCI address; position N is what "vendor:N" selects without
// CDI. Only nodes whose /sys/class/drm/renderD*/device/vendor reads the vendor's PCI id: never
// another vendor's, never a BMC's display device. Unreadable entries are left out.
std::vector<RenderNode> VendorRenderNodes(const HostRoot& root, GpuVendor vendor);

}  // namespace smolvm::gpu
