#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace smolvm::gpu {

// How to make the host declare its GPUs through CDI; the default hint.
extern const std::string_view kCdiHint;
// Why --group-add keep-groups may fail, and what to do about it.
extern const std::string_view kKeepGroupsHint;
// A file or device node of a GPU's driver is gone that the container was to get.
extern const std::string_view kStaleHint;
// A hook of the vendor's CDI spec failed.
extern const std::string_view kSpecHookHint;
// Why NVIDIA's older OCI hook may fail, and what to do about it.
extern const std::string_view kNvidiaHookHint;

// The host cannot serve a GPU selector, or a container that was given GPUs did not start.
class GpuConfigError : public std::runtime_error {
 public:
  explicit GpuConfigError(const std::string& message, std::string_view hint = kCdiHint)
      : std::runtime_error(message), hint_(hint) {}

  // What to do about it.
  const std::string& hint() const { return hint_; }

 private:
  std::string hint_;
};

// The hint that fits what podman, or the OCI runtime through it, wrote to stderr; nullopt when it
// does not look like a GPU matter. What the host's CDI specs say of it: container/explain.h.
std::optional<std::string_view> HintForLaunchError(std::string_view podman_stderr);

// Throws GpuConfigError when `podman_stderr` looks like a failure to hand over GPUs; the message
// carries podman's text (bytes that are not UTF-8 replaced) and the hint. Otherwise does nothing.
void check_gpu_error(std::string_view podman_stderr);

}  // namespace smolvm::gpu
