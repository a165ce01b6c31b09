#include "host-daemon/worker/worker_options.h"

#include <CLI/CLI.hpp>

namespace smolvm::worker {

bool ParseWorkerOptions(int argc, char** argv, WorkerOptions* options) {
  CLI::App app("Serves one session; started by smolvm-cuda-daemon, not by hand");
  app.add_option("--backend", options->backend)
      ->check(CLI::IsMember({"auto", "driver", "emulation"}));
  app.add_option("--driver", options->driver);
  app.add_option("--emulation", options->emulation);
  app.add_option("--gpus", options->gpus);
  app.add_option("--memory-limit", options->memory_limit);
  std::string sandbox = "on";
  app.add_option("--sandbox", sandbox)->check(CLI::IsMember({"on", "off"}));
  app.add_option("--log-level", options->log_level);
  app.add_option("--emulation-memory", options->emulation_memory);
  app.add_option("--emulation-compute-capability", options->emulation_compute_capability);
  app.add_option("--emulation-cache", options->emulation_cache);
  app.add_option("--kernel-timeout-ms", options->kernel_timeout_ms);
  app.add_option("--compile-limit-ms", options->compile_limit_ms);
  app.add_option("--kernel-memory", options->kernel_memory);
  try {
    app.parse(argc, argv);
    options->sandbox = sandbox == "on";
    return true;
  } catch (const CLI::ParseError& error) {
    app.exit(error);
    return false;
  }
}

}  // namespace smolvm::worker
