#include "container/render_nodes.h"

#include <algorithm>

#include "container/pci_address.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

constexpr std::string_view kSysDrm = "/sys/class/drm";
constexpr std::string_view kNodePrefix = "renderD";

bool IsRenderNodeName(std::string_view name) {
  if (!name.starts_with(kNodePrefix) || name.size() == kNodePrefix.size()) return false;
  return name.find_first_not_of("0123456789", kNodePrefix.size()) == std::string_view::npos;
}

bool BelongsTo(const HostRoot& root, const std::string& device, GpuVendor vendor) {
  const HostRoot::Text id = root.Read(device + "/vendor");
  return Trim(id.text) == PciVendorId(vendor);
}

std::string AddressOf(const HostRoot& root, const std::string& device, const std::string& name) {
  const std::optional<std::string> target = root.LinkTarget(device);
  if (!target) return name;
  const std::string address = target->substr(target->rfind('/') + 1);
  return address.empty() ? name : address;
}

}  // namespace

std::vector<RenderNode> VendorRenderNodes(const HostRoot& root, GpuVendor vendor) {
  std::vector<RenderNode> nodes;
  for (const std::string& name : root.List(kSysDrm).value_or(std::vector<std::string>())) {
    if (!IsRenderNodeName(name)) continue;
    const std::string device = std::string(kSysDrm) + "/" + name + "/device";
    if (!BelongsTo(root, device, vendor)) continue;
    RenderNode node{AddressOf(root, device, name), "/dev/dri/" + name, false, std::nullopt};
    node.present = root.Exists(node.path);
    const std::string link = "/dev/dri/by-path/pci-" + node.address + "-render";
    if (root.Exists(link)) node.by_path = link;
    nodes.push_back(std::move(node));
  }
  std::sort(nodes.begin(), nodes.end(), [](const RenderNode& a, const RenderNode& b) {
    return a.address == b.address ? a.path < b.path : PciAddressLess(a.address, b.address);
  });
  return nodes;
}

}  // namespace smolvm::gpu
