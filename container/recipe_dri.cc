// AMD: CDI (amd-ctk), else /dev/kfd and the AMD render nodes, as ROCm documents.
// Intel: CDI, else the Intel render nodes; the oneAPI and NEO stack needs nothing else.
#include <string>

#include "container/error.h"
#include "container/recipe.h"

namespace smolvm::gpu {
namespace {

constexpr char kKfd[] = "/dev/kfd";

// Render nodes belong to the group "render": the invoking user's groups go into the container.
const PodmanOption kKeepGroups = {"--group-add", "keep-groups"};

std::optional<Mechanism> CdiOrRaw(GpuVendor vendor, const CdiSpecs& cdi, bool raw) {
  if (cdi.Usable(vendor) != nullptr) return Mechanism::kCdi;
  return raw ? std::optional(Mechanism::kRaw) : std::nullopt;
}

}  // namespace

std::optional<Mechanism> AmdMechanism(const Host& host, const CdiSpecs& cdi) {
  return CdiOrRaw(GpuVendor::kAmd, cdi,
                  host.root.Exists(kKfd) && HasUsableRenderNode(host.root, GpuVendor::kAmd));
}

std::optional<Mechanism> IntelMechanism(const Host& host, const CdiSpecs& cdi) {
  return CdiOrRaw(GpuVendor::kIntel, cdi, HasUsableRenderNode(host.root, GpuVendor::kIntel));
}

std::vector<PodmanOption> AmdOptions(const DeviceChoice& choice, const Host& host,
                                     const CdiSpecs& cdi) {
  std::vector<PodmanOption> options;
  if (const CdiSpecs::Kind* kind = cdi.Usable(GpuVendor::kAmd)) {
    options = CdiOptions(GpuVendor::kAmd, choice, *kind, host.root);
  } else {
    if (!host.root.Exists(kKfd)) {
      throw GpuConfigError(
          "cannot pass amd: " + NoCdiSpec(GpuVendor::kAmd, cdi) + ", and there is no /dev/kfd",
          "Load the amdgpu kernel driver (`sudo modprobe amdgpu`), which makes "
          "/dev/kfd and the render nodes.\n"
          "Or declare the GPUs through CDI: sudo amd-ctk cdi generate "
          "--output=/etc/cdi/amd.json");
    }
    options = RenderNodeOptions(GpuVendor::kAmd, choice, host, cdi);
    options.insert(options.begin(), PodmanOption{"--device", kKfd});
  }
  options.push_back(kKeepGroups);
  return options;
}

std::vector<PodmanOption> IntelOptions(const DeviceChoice& choice, const Host& host,
                                       const CdiSpecs& cdi) {
  std::vector<PodmanOption> options;
  if (const CdiSpecs::Kind* kind = cdi.Usable(GpuVendor::kIntel)) {
    options = CdiOptions(GpuVendor::kIntel, choice, *kind, host.root);
  } else {
    options = RenderNodeOptions(GpuVendor::kIntel, choice, host, cdi);
  }
  options.push_back(kKeepGroups);
  return options;
}

}  // namespace smolvm::gpu
