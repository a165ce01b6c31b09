#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/cdi.h"
#include "container/host.h"
#include "container/vendor.h"

namespace smolvm::gpu {

// One option of `podman run` with its value: two words on the command line.
struct PodmanOption {
  std::string flag;
  std::string value;

  friend bool operator==(const PodmanOption&, const PodmanOption&) = default;
};

// By what means a vendor's GPUs reach a container, best first.
enum class Mechanism {
  kCdi,   // a CDI spec declares them
  kHook,  // NVIDIA's OCI hook, the Container Toolkit's way before CDI
  kRaw,   // their device nodes
};
std::string_view MechanismName(Mechanism mechanism);  // "cdi", "hook", "raw"

// The means by which this host can pass all of a vendor's GPUs now; nullopt when it has none.
std::optional<Mechanism> MechanismFor(GpuVendor vendor, const Host& host, const CdiSpecs& cdi);

// The podman options that pass a vendor's chosen GPUs. Throws GpuConfigError when the host cannot,
// naming the prerequisite that is missing. Warns (host.warn) once when an index rests on PCI order.
std::vector<PodmanOption> VendorOptions(GpuVendor vendor, const DeviceChoice& choice,
                                        const Host& host, const CdiSpecs& cdi);

// The single vendors' parts, each in a file of its own.
std::optional<Mechanism> NvidiaMechanism(const Host& host, const CdiSpecs& cdi);
std::optional<Mechanism> AmdMechanism(const Host& host, const CdiSpecs& cdi);
std::optional<Mechanism> IntelMechanism(const Host& host, const CdiSpecs& cdi);
std::vector<PodmanOption> NvidiaOptions(const DeviceChoice& choice, const Host& host,
                                        const CdiSpecs& cdi);
std::vector<PodmanOption> AmdOptions(const DeviceChoice& choice, const Host& host,
                                     const CdiSpecs& cdi);
std::vector<PodmanOption> IntelOptions(const DeviceChoice& choice, const Host& host,
                                       const CdiSpecs& cdi);

// Pieces that the vendors share.

// `--device KIND=all`, or one for each index. Throws when podman could not hand one of them over,
// see WhyNotUsable.
std::vector<PodmanOption> CdiOptions(GpuVendor vendor, const DeviceChoice& choice,
                                     const CdiSpecs::Kind& kind, const HostRoot& root);
// `--device` for each granted render node, and its by-path link, read-only. Throws when the vendor
// has none, when an index is out of range, or when a chosen node is missing from /dev.
std::vector<PodmanOption> RenderNodeOptions(GpuVendor vendor, const DeviceChoice& choice,
                                            const Host& host, const CdiSpecs& cdi);
bool HasUsableRenderNode(const HostRoot& root, GpuVendor vendor);
// "no CDI spec declares amd.com/gpu (looked in …)", the first half of what is missing.
std::string NoCdiSpec(GpuVendor vendor, const CdiSpecs& cdi);
void WarnOfPciOrder(GpuVendor vendor, const Host& host);

}  // namespace smolvm::gpu
