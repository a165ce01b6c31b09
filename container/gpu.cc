#include "container/gpu.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "container/nvidia_devices.h"
#include "container/render_nodes.h"
#include "container/text.h"

namespace smolvm::gpu {
namespace {

std::vector<std::string> AddressesOf(const HostRoot& root, GpuVendor vendor) {
  if (vendor == GpuVendor::kNvidia) return NvidiaAddresses(root);
  std::vector<RenderNode> nodes = VendorRenderNodes(root, vendor);
  std::vector<std::string> addresses;
  addresses.reserve(nodes.size());
  for (RenderNode& node : nodes) addresses.push_back(std::move(node.address));
  return addresses;
}

[[noreturn]] void NothingToPass(const CdiSpecs& cdi) {
  std::vector<std::string> kinds;
  kinds.reserve(GPU_VENDORS.size());
  for (GpuVendor vendor : GPU_VENDORS) kinds.emplace_back(CdiKind(vendor));
  std::string podman;
  if (cdi.too_old) podman = " that podman " + cdi.too_old->ToString() + " can use";
  throw GpuConfigError("no GPU that can be passed: looked for CDI specs of " + Join(kinds, ", ") +
                       podman + " (in " + cdi.looked_in +
                       "), NVIDIA's OCI hook (oci-nvidia-hook.json), /dev/nvidiactl, /dev/kfd with "
                       "an AMD render node, and an Intel render node");
}

// What the selector asks of each vendor, in canonical order.
std::vector<std::pair<GpuVendor, DeviceChoice>> Resolve(const GpuSelector& gpus, const Host& host,
                                                        const CdiSpecs& cdi) {
  std::vector<std::pair<GpuVendor, DeviceChoice>> wanted;
  for (GpuVendor vendor : GPU_VENDORS) {
    if (gpus.all()) {
      if (MechanismFor(vendor, host, cdi)) wanted.emplace_back(vendor, DeviceChoice());
    } else if (std::optional<DeviceChoice> choice = gpus.ChoiceFor(vendor)) {
      wanted.emplace_back(vendor, std::move(*choice));
    }
  }
  if (wanted.empty()) NothingToPass(cdi);
  return wanted;
}

// The first, as one for each device of a stale spec would say the same.
void WarnOfUnusableDevices(GpuVendor vendor, const CdiSpecs::Kind& kind, const Host& host) {
  std::vector<std::string> names = kind.Names();
  if (names.empty()) names.emplace_back("all");
  for (const std::string& name : names) {
    const std::string problem = WhyNotUsable(vendor, name, kind, host.root);
    if (!problem.empty()) return host.warn(problem);
  }
}

}  // namespace

std::vector<std::string> gpu_run_args(const GpuSelector& gpus, const Host& host) {
  if (gpus.off()) return {};
  const CdiSpecs cdi = LoadCdiSpecs(host);
  WarnOfSkippedSpecs(cdi, host);
  std::vector<PodmanOption> unique;
  for (const auto& [vendor, choice] : Resolve(gpus, host, cdi)) {
    for (PodmanOption& option : VendorOptions(vendor, choice, host, cdi)) {
      const bool known = std::find(unique.begin(), unique.end(), option) != unique.end();
      if (!known) unique.push_back(std::move(option));
    }
  }
  std::vector<std::string> words;
  words.reserve(2 * unique.size());
  for (PodmanOption& option : unique) {
    words.push_back(std::move(option.flag));
    words.push_back(std::move(option.value));
  }
  return words;
}

std::set<GpuVendor> detect_gpu_vendors(const Host& host) {
  const CdiSpecs cdi = LoadCdiSpecs(host);
  std::set<GpuVendor> found;
  for (GpuVendor vendor : GPU_VENDORS) {
    if (MechanismFor(vendor, host, cdi)) found.insert(vendor);
  }
  return found;
}

bool check_gpu_available(const Host& host) noexcept {
  try {
    return LoadCdiSpecs(host).Declared(GpuVendor::kNvidia) != nullptr;
  } catch (const std::exception&) {  // out of memory: the answer is still yes or no
    return false;
  }
}

GpuAddresses gpu_device_addresses(const HostRoot& root) {
  GpuAddresses addresses;
  for (std::size_t i = 0; i < GPU_VENDORS.size(); ++i) {
    addresses[i] = AddressesOf(root, GPU_VENDORS[i]);
  }
  return addresses;
}

std::vector<DetectedVendor> DetectGpus(const Host& host) {
  const CdiSpecs cdi = LoadCdiSpecs(host);
  std::vector<DetectedVendor> detected;
  for (GpuVendor vendor : GPU_VENDORS) {
    const std::optional<Mechanism> mechanism = MechanismFor(vendor, host, cdi);
    if (!mechanism) continue;
    DetectedVendor found{vendor, *mechanism, AddressesOf(host.root, vendor), {}, {}};
    if (*mechanism == Mechanism::kCdi) {
      const CdiSpecs::Kind& kind = *cdi.Usable(vendor);
      found.cdi_files = kind.files;
      found.cdi_devices = kind.Names();
      WarnOfUnusableDevices(vendor, kind, host);
    }
    detected.push_back(std::move(found));
  }
  WarnOfSkippedSpecs(cdi, host);
  return detected;
}

}  // namespace smolvm::gpu
