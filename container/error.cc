#include "container/error.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "container/text.h"
#include "container/vendor.h"

namespace smolvm::gpu {

const std::string_view kCdiHint =
    "Have the vendor's tool declare the GPUs to podman, and again after each driver update:\n"
    "  NVIDIA  sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
    "  AMD     sudo amd-ctk cdi generate --output=/etc/cdi/amd.json\n"
    "  Intel   a CDI spec for intel.com/gpu in /etc/cdi, or none for the render nodes\n"
    "`smolvm gpu detect` shows what this host declares; podman before 4.1 knows no CDI.";

const std::string_view kKeepGroupsHint =
    "AMD and Intel render nodes belong to the group 'render', so podman is given --group-add "
    "keep-groups.\n"
    "Only the OCI runtime crun honours it: install crun and add --runtime crun (or set runtime = "
    "\"crun\" in containers.conf).\n"
    "It must be the only --group-add option, and podman must run on this machine (no --remote).";

const std::string_view kNvidiaHookHint =
    "NVIDIA's OCI hook cannot set up devices for a rootless podman while it manages cgroups: set\n"
    "  no-cgroups = true\n"
    "under [nvidia-container-cli] in /etc/nvidia-container-runtime/config.toml. Better, replace "
    "the "
    "hook by CDI:\n"
    "  sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";

namespace {

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    return text.find(pattern) != std::string_view::npos;
  });
}

bool NamesAKind(std::string_view text) {
  return std::any_of(GPU_VENDORS.begin(), GPU_VENDORS.end(), [&](GpuVendor vendor) {
    return text.find(CdiKind(vendor)) != std::string_view::npos;
  });
}

}  // namespace

std::optional<std::string_view> HintForLaunchError(std::string_view podman_stderr) {
  if (ContainsAny(podman_stderr, {"keep-groups", "keep_original_groups"})) return kKeepGroupsHint;
  if (ContainsAny(podman_stderr, {"nvidia-container-cli", "nvidia-container-runtime-hook"})) {
    return kNvidiaHookHint;
  }
  if (ContainsAny(podman_stderr, {"cdi.k8s.io", "CDI"}) || NamesAKind(podman_stderr)) {
    return kCdiHint;
  }
  return std::nullopt;
}

void check_gpu_error(std::string_view podman_stderr) {
  const std::optional<std::string_view> hint = HintForLaunchError(podman_stderr);
  if (!hint) return;
  throw GpuConfigError("Container launch failed (GPU misconfiguration):\n" +
                           ReplaceInvalidUtf8(Trim(podman_stderr)) + "\n\n" + std::string(*hint),
                       *hint);
}

}  // namespace smolvm::gpu
