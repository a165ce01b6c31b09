#pragma once

// The whole contract in one place: which GPUs a container gets, by which podman arguments.

#include <array>
#include <set>
#include <string>
#include <vector>

#include "container/error.h"
#include "container/host.h"
#include "container/recipe.h"
#include "container/selector.h"
#include "container/vendor.h"

namespace smolvm::gpu {

// The `podman run` arguments that pass the selected GPUs, as words: {"--device",
// "nvidia.com/gpu=all", …}. Empty when the selector is off. Each (flag, value) pair appears once,
// in its first place.
//
// "all" takes every vendor that detect_gpu_vendors() finds, and throws GpuConfigError listing what
// was looked for when there is none; an explicit grant throws when its own prerequisite is missing.
// Asks podman (see LoadCdiSpecs), so it may take as long as podman's answer limit.
std::vector<std::string> gpu_run_args(const GpuSelector& gpus, const Host& host = Host());

// The vendors whose GPUs this host can pass now: a CDI spec declares them, or the markers of the
// fallback are there (NVIDIA's OCI hook or /dev/nvidiactl; /dev/kfd and an AMD render node; an
// Intel render node).
std::set<GpuVendor> detect_gpu_vendors(const Host& host = Host());

// Whether a CDI spec declares nvidia.com/gpu. Never throws: any failure is a no.
bool check_gpu_available(const Host& host = Host()) noexcept;

// Each vendor's PCI addresses, in the order that indices count without CDI (in GPU_VENDORS' order).
// Where CDI is used the vendor's spec owns the numbering, and this is informational.
using GpuAddresses = std::array<std::vector<std::string>, GPU_VENDORS.size()>;
GpuAddresses gpu_device_addresses(const HostRoot& root = HostRoot());

// What `smolvm gpu detect` and host checks report of one vendor.
struct DetectedVendor {
  GpuVendor vendor;
  Mechanism mechanism;
  std::vector<std::string> addresses;    // as in gpu_device_addresses
  std::vector<std::string> cdi_files;    // the specs that declare it, with Mechanism::kCdi
  std::vector<std::string> cdi_devices;  // the device names they declare
};
std::vector<DetectedVendor> DetectGpus(const Host& host = Host());

}  // namespace smolvm::gpu
