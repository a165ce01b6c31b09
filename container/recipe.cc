#include "container/recipe.h"

#include <algorithm>
#include <cstdint>

#include "container/error.h"
#include "container/render_nodes.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

// What `vendor:N` would select, for messages: "amd:0=0000:03:00.0, amd:1=0000:83:00.0".
std::string IndexMap(GpuVendor vendor, const std::vector<RenderNode>& nodes) {
  std::vector<std::string> map;
  map.reserve(nodes.size());
  for (const RenderNode& node : nodes) {
    map.push_back(std::string(VendorName(vendor)) + ":" + std::to_string(map.size()) + "=" +
                  node.address);
  }
  return Join(map, ", ");
}

std::vector<RenderNode> Choose(GpuVendor vendor, const std::vector<std::uint32_t>& indices,
                               const std::vector<RenderNode>& nodes) {
  std::vector<RenderNode> chosen;
  chosen.reserve(indices.size());
  for (std::uint32_t index : indices) {
    const std::string token = std::string(VendorName(vendor)) + ":" + std::to_string(index);
    if (index >= nodes.size()) {
      throw GpuConfigError(token + " is out of range: this host has " + IndexMap(vendor, nodes));
    }
    if (!nodes[index].present) {
      throw GpuConfigError(token + " is " + nodes[index].address + ", whose device node " +
                           nodes[index].path + " does not exist here");
    }
    chosen.push_back(nodes[index]);
  }
  return chosen;
}

// All of the vendor's nodes that exist; those that do not are named in a warning.
std::vector<RenderNode> ChooseAll(const std::vector<RenderNode>& nodes, const Host& host) {
  std::vector<RenderNode> chosen;
  for (const RenderNode& node : nodes) {
    if (node.present) {
      chosen.push_back(node);
    } else {
      host.warn(node.address + " is not passed: its device node " + node.path +
                " does not exist here");
    }
  }
  return chosen;
}

std::string_view RenderNodeHint(GpuVendor vendor) {
  if (vendor == GpuVendor::kAmd) {
    return "The amdgpu kernel driver makes the render nodes: check `lspci -k` and "
           "`ls -l /sys/class/drm`.\n"
           "Or declare the GPUs through CDI: sudo amd-ctk cdi generate --output=/etc/cdi/amd.json";
  }
  return "The i915 or xe kernel driver makes the render nodes: check `lspci -k` and "
         "`ls -l /sys/class/drm`.\n"
         "Or declare the GPUs through a CDI spec for intel.com/gpu in /etc/cdi.";
}

}  // namespace

std::string_view MechanismName(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::kCdi:
      return "cdi";
    case Mechanism::kHook:
      return "hook";
    case Mechanism::kRaw:
      return "raw";
  }
  return "";
}

std::optional<Mechanism> MechanismFor(GpuVendor vendor, const Host& host, const CdiSpecs& cdi) {
  switch (vendor) {
    case GpuVendor::kNvidia:
      return NvidiaMechanism(host, cdi);
    case GpuVendor::kAmd:
      return AmdMechanism(host, cdi);
    case GpuVendor::kIntel:
      return IntelMechanism(host, cdi);
  }
  return std::nullopt;
}

std::vector<PodmanOption> VendorOptions(GpuVendor vendor, const DeviceChoice& choice,
                                        const Host& host, const CdiSpecs& cdi) {
  switch (vendor) {
    case GpuVendor::kNvidia:
      return NvidiaOptions(choice, host, cdi);
    case GpuVendor::kAmd:
      return AmdOptions(choice, host, cdi);
    case GpuVendor::kIntel:
      return IntelOptions(choice, host, cdi);
  }
  return {};
}

std::vector<PodmanOption> CdiOptions(GpuVendor vendor, const DeviceChoice& choice,
                                     const CdiSpecs::Kind& kind, const HostRoot& root) {
  std::vector<std::string> names;
  if (!choice) names.push_back("all");
  for (std::uint32_t index : choice.value_or(std::vector<std::uint32_t>())) {
    names.push_back(std::to_string(index));
  }
  std::vector<PodmanOption> options;
  for (const std::string& name : names) {
    const std::string problem = WhyNotUsable(vendor, name, kind, root);
    if (!problem.empty()) throw GpuConfigError(problem, kSpecHint);
    options.push_back({"--device", std::string(CdiKind(vendor)) + "=" + name});
  }
  return options;
}

std::vector<PodmanOption> RenderNodeOptions(GpuVendor vendor, const DeviceChoice& choice,
                                            const Host& host, const CdiSpecs& cdi) {
  const std::vector<RenderNode> nodes = VendorRenderNodes(host.root, vendor);
  const std::vector<RenderNode> chosen =
      choice && !nodes.empty() ? Choose(vendor, *choice, nodes) : ChooseAll(nodes, host);
  if (chosen.empty()) {
    throw GpuConfigError("cannot pass " + std::string(VendorName(vendor)) + ": " +
                             NoCdiSpec(vendor, cdi) + ", and there is no render node of vendor " +
                             std::string(PciVendorId(vendor)) +
                             " (looked at /sys/class/drm/renderD*/device/vendor and /dev/dri)",
                         RenderNodeHint(vendor));
  }
  if (choice) WarnOfPciOrder(vendor, host);
  std::vector<PodmanOption> options;
  for (const RenderNode& node : chosen) {
    options.push_back({"--device", node.path});
    // --mount, because the colons of a PCI address would end -v's first field.
    if (node.by_path) {
      options.push_back({"--mount", "type=bind,source=" + *node.by_path +
                                        ",destination=" + *node.by_path + ",ro=true"});
    }
  }
  return options;
}

bool HasUsableRenderNode(const HostRoot& root, GpuVendor vendor) {
  const std::vector<RenderNode> nodes = VendorRenderNodes(root, vendor);
  return std::any_of(nodes.begin(), nodes.end(), [](const RenderNode& n) { return n.present; });
}

std::string NoCdiSpec(GpuVendor vendor, const CdiSpecs& cdi) {
  const std::string kind(CdiKind(vendor));
  if (cdi.too_old && cdi.Declared(vendor) != nullptr) {
    return "a CDI spec declares " + kind + " but podman " + cdi.too_old->ToString() +
           " is older than " + kFirstPodmanWithCdi.ToString() + " and knows no CDI";
  }
  return "no CDI spec declares " + kind + " (looked in " + cdi.looked_in + ")";
}

void WarnOfPciOrder(GpuVendor vendor, const Host& host) {
  host.warn("without CDI, the indices of '" + std::string(VendorName(vendor)) +
            "' are best effort: they count in PCI bus order, which may differ from the vendor's "
            "own tools (see `smolvm gpu detect`)");
}

}  // namespace smolvm::gpu
