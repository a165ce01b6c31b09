// The worker's command line, which the daemon writes.
#pragma once

#include <cstdint>
#include <string>

namespace smolvm::worker {

struct WorkerOptions {
  std::string backend = "auto";  // auto, driver, emulation
  std::string driver = "libcuda.so.1";
  std::string emulation;      // path of the emulation library
  std::string gpus;           // "" = all, or indices: "0,2"
  uint64_t memory_limit = 0;  // bytes; 0 = none
  bool sandbox = true;        // with the emulation library; the driver's worker has none
  std::string log_level = "info";
  // For the emulation library's environment; "" = its own default.
  std::string emulation_memory, emulation_compute_capability, emulation_cache;
  std::string kernel_timeout_ms, compile_limit_ms, kernel_memory;
};

// False: the message is on stderr.
bool ParseWorkerOptions(int argc, char** argv, WorkerOptions* options);

}  // namespace smolvm::worker
