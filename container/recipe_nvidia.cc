// NVIDIA: CDI (nvidia-ctk), else the Container Toolkit's OCI hook, else the device nodes for images
// that bring the driver's own user-space libraries.
#include <algorithm>
#include <string>

#include "container/error.h"
#include "container/nvidia_devices.h"
#include "container/recipe.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

constexpr const char* kHookFiles[] = {
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/etc/containers/oci/hooks.d/oci-nvidia-hook.json",
};
constexpr char kControlNode[] = "/dev/nvidiactl";

constexpr std::string_view kHint =
    "Install the NVIDIA driver and the NVIDIA Container Toolkit, then declare the GPUs to podman:\n"
    "  sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
    "and again after each driver update.";

bool HasHook(const HostRoot& root) {
  return std::any_of(std::begin(kHookFiles), std::end(kHookFiles),
                     [&](const char* file) { return root.Exists(file); });
}

// Both the hook and CUDA images act on these; CDI and raw containers get them for their tools'
// sake.
std::vector<PodmanOption> Environment(const DeviceChoice& choice) {
  const std::string visible = choice ? JoinIndices(*choice) : "all";
  return {{"-e", "NVIDIA_VISIBLE_DEVICES=" + visible}, {"-e", "NVIDIA_DRIVER_CAPABILITIES=all"}};
}

// What each index would select, for messages: "nvidia:0=0000:01:00.0, …".
std::string CardMap(const HostRoot& root) {
  std::vector<std::string> cards;
  for (const std::string& address : NvidiaAddresses(root)) {
    cards.push_back("nvidia:" + std::to_string(cards.size()) + "=" + address);
  }
  return Join(cards, ", ");
}

// The nodes of the chosen cards. Which minor an index has only the driver's map tells.
std::vector<std::string> ChosenCards(const std::vector<std::uint32_t>& indices,
                                     const NvidiaNodes& nodes, const Host& host) {
  const NvidiaMinors map = ReadNvidiaMinors(host.root);
  if (!map.error.empty()) {
    throw GpuConfigError(
        "cannot tell which card nvidia:" + std::to_string(indices.front()) + " is: " + map.error,
        "Grant the whole vendor ('nvidia'), or use CDI.\n" + std::string(kHint));
  }
  std::vector<std::string> cards;
  cards.reserve(indices.size());
  for (std::uint32_t index : indices) {
    const std::string token = "nvidia:" + std::to_string(index);
    if (index >= map.minors.size()) {
      throw GpuConfigError(token + " is out of range: this host has " +
                               std::to_string(map.minors.size()) + " NVIDIA card(s), " +
                               CardMap(host.root),
                           kHint);
    }
    const std::string node = "/dev/nvidia" + std::to_string(map.minors[index]);
    if (std::find(nodes.cards.begin(), nodes.cards.end(), node) == nodes.cards.end()) {
      throw GpuConfigError(token + " needs the device node " + node + ", which does not exist here",
                           kHint);
    }
    cards.push_back(node);
  }
  WarnOfPciOrder(GpuVendor::kNvidia, host);
  return cards;
}

std::vector<PodmanOption> RawOptions(const DeviceChoice& choice, const Host& host) {
  const NvidiaNodes nodes = ListNvidiaNodes(host.root);
  std::vector<std::string> granted = choice ? ChosenCards(*choice, nodes, host) : nodes.cards;
  if (granted.empty()) {
    host.warn(std::string(kControlNode) + " exists but no card's node /dev/nvidia<N> does");
  }
  granted.insert(granted.end(), nodes.shared.begin(), nodes.shared.end());
  std::vector<PodmanOption> options;
  options.reserve(granted.size());
  for (const std::string& node : granted) options.push_back({"--device", node});
  return options;
}

}  // namespace

std::optional<Mechanism> NvidiaMechanism(const Host& host, const CdiSpecs& cdi) {
  if (cdi.Usable(GpuVendor::kNvidia) != nullptr) return Mechanism::kCdi;
  if (HasHook(host.root)) return Mechanism::kHook;
  if (host.root.Exists(kControlNode)) return Mechanism::kRaw;
  return std::nullopt;
}

std::vector<PodmanOption> NvidiaOptions(const DeviceChoice& choice, const Host& host,
                                        const CdiSpecs& cdi) {
  const std::optional<Mechanism> mechanism = NvidiaMechanism(host, cdi);
  if (!mechanism) {
    throw GpuConfigError("cannot pass nvidia: " + NoCdiSpec(GpuVendor::kNvidia, cdi) +
                             ", there is no oci-nvidia-hook.json in "
                             "/usr/share/containers/oci/hooks.d or /etc/containers/oci/hooks.d, "
                             "and no /dev/nvidiactl",
                         kHint);
  }
  std::vector<PodmanOption> options;
  if (*mechanism == Mechanism::kCdi) {
    options = CdiOptions(GpuVendor::kNvidia, choice, *cdi.Usable(GpuVendor::kNvidia), host.root);
  } else if (*mechanism == Mechanism::kRaw) {
    options = RawOptions(choice, host);
  }
  const std::vector<PodmanOption> environment = Environment(choice);
  options.insert(options.end(), environment.begin(), environment.end());
  return options;
}

}  // namespace smolvm::gpu
