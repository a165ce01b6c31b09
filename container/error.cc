#include "container/error.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>

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

const std::string_view kStaleHint =
    "Something of the GPU's driver that the container was to get is not there (any more): a CDI "
    "spec "
    "from\n"
    "before a driver update names files of the old one, or the device itself has gone. Have the "
    "spec "
    "written anew:\n"
    "  NVIDIA  sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
    "  AMD     sudo amd-ctk cdi generate --output=/etc/cdi/amd.json\n"
    "  Intel   a CDI spec for intel.com/gpu in /etc/cdi, or none for the render nodes\n"
    "`smolvm gpu detect` names the spec and what it lacks.";

const std::string_view kSpecHookHint =
    "A hook that the CDI spec names failed: the vendor's tool does not fit the spec, or the driver "
    "is "
    "not loaded.\n"
    "Update the tool (NVIDIA's Container Toolkit, amd-ctk), load the driver, and have the spec "
    "written anew:\n"
    "  NVIDIA  nvidia-smi; sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml\n"
    "  AMD     sudo amd-ctk cdi generate --output=/etc/cdi/amd.json";

const std::string_view kNvidiaHookHint =
    "NVIDIA's OCI hook cannot set up devices for a rootless podman while it manages cgroups: set\n"
    "  no-cgroups = true\n"
    "under [nvidia-container-cli] in /etc/nvidia-container-runtime/config.toml. Better, replace "
    "the "
    "hook by CDI:\n"
    "  sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml";

namespace {

bool ContainsAny(std::string_view text, std::span<const std::string_view> patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](std::string_view pattern) {
    return text.find(pattern) != std::string_view::npos;
  });
}

bool ContainsAny(std::string_view text, std::initializer_list<std::string_view> patterns) {
  return ContainsAny(text, std::span(patterns.begin(), patterns.size()));
}

bool NamesAKind(std::string_view text) {
  return std::any_of(GPU_VENDORS.begin(), GPU_VENDORS.end(), [&](GpuVendor vendor) {
    return text.find(CdiKind(vendor)) != std::string_view::npos;
  });
}

// Paths that only GPU drivers have, or the devices themselves.
constexpr std::string_view kDriverPaths[] = {
    "/dev/dri/",  "/dev/kfd",   "/dev/nvidia",   "/nvidia/",      "/nvidia_",    "/bin/nvidia-",
    "_nvidia.so", "libnvidia-", "libnvcuvid.so", "libnvoptix.so", "libcuda.so",  "libcudadebugger",
    "amdgpu",     "/opt/rocm",  "libze_intel",   "libigdgmm",     "intel-opencl"};
// The vendors' hooks in CDI specs.
constexpr std::string_view kSpecHooks[] = {"nvidia-ctk", "nvidia-cdi-hook", "amd-ctk",
                                           "amd-cdi-hook", "intel-cdi-hook"};

// A line that says of a driver's path that it is not there. podman prefixes its errors; a program
// in the container that misses its library says so in its own way, and one that is not in the image
// ("executable file not found in $PATH") is no file of the driver.
bool SaysThatDriverIsGone(std::string_view line) {
  return line.starts_with("Error: ") && ContainsAny(line, kDriverPaths) &&
         !ContainsAny(line, {"executable file"}) &&
         ContainsAny(line, {"No such file or directory", "no such file or directory"});
}

bool SaysThatHookFailed(std::string_view line) {
  return line.starts_with("Error: ") && ContainsAny(line, kSpecHooks) &&
         ContainsAny(line, {"hook"});
}

bool AnyLine(std::string_view text, bool (*says)(std::string_view)) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (says(text.substr(0, end))) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

}  // namespace

std::optional<std::string_view> HintForLaunchError(std::string_view podman_stderr) {
  if (ContainsAny(podman_stderr, {"keep-groups", "keep_original_groups"})) return kKeepGroupsHint;
  if (ContainsAny(podman_stderr, {"nvidia-container-cli", "nvidia-container-runtime-hook"})) {
    return kNvidiaHookHint;
  }
  if (AnyLine(podman_stderr, SaysThatDriverIsGone)) return kStaleHint;
  if (AnyLine(podman_stderr, SaysThatHookFailed)) return kSpecHookHint;
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
