#pragma once

// What the subcommands of `smolvm gpu` do, once their options are parsed.

#include <string>
#include <vector>

#include "container/format.h"
#include "container/host.h"
#include "container/remote.h"
#include "container/selector.h"

namespace smolvm::gpu {

// A podman command that this word gets into fails, instead of running without a GPU.
inline constexpr char kErrorWord[] = "--smolvm-gpu-error";

// Exit statuses. A usage error is 125 as podman's own; so is every failure of `run` that is not
// podman's.
inline constexpr int kExitNo = 1;
inline constexpr int kExitFailed = 125;

// The options that are the same everywhere.
struct HostOptions {
  std::string root = "/";
  std::string podman;  // "": $SMOLVM_PODMAN, else podman
  std::vector<std::string> podman_options;

  Host ToHost() const;
};

// What to grant: the selector's words as given, and whether through the daemon.
struct GrantOptions {
  std::vector<std::string> selector;
  bool remote = false;
  std::string library;  // these three only with `remote`
  std::string socket;
  std::string more_library_path;

  // Throws as normalize_gpus, gpu_run_args and CheckRemoting do.
  std::vector<std::string> ToArgs(const Host& host) const;
  Remoting ToRemoting(const Host& host) const;
};

// Each returns the process's exit status.
int PrintDetected(const Host& host, bool json);
int PrintRunArgs(const Host& host, const GrantOptions& grant, ArgsFormat format);
int PrintAvailable(const Host& host);
int ExplainStdin(const Host& host);
int RunPodman(const Host& host, const GrantOptions& grant,
              const std::vector<std::string>& podman_args);
int WriteCdiSpec(const Host& host, const GrantOptions& grant, const std::string& output);

}  // namespace smolvm::gpu
