#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "container/host_root.h"
#include "container/podman.h"

namespace smolvm::gpu {

// The host whose GPUs are granted: its files, its podman, and where warnings go.
struct Host {
  HostRoot root;
  Podman podman;
  // Called with one line, without a newline. The default writes "smolvm gpu: warning: …" to stderr.
  std::function<void(std::string_view)> warn = WarnOnStderr;

  static void WarnOnStderr(std::string_view line);
};

}  // namespace smolvm::gpu
