// A daemon with the emulation device, for as long as the object lives.
#pragma once

#include <sys/types.h>

#include <string>

namespace smolvm::bench {

class Daemon {
 public:
  // Returns when it is ready, with a worker waiting; ends the process when it does not get so far.
  Daemon();
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  pid_t pid() const { return pid_; }
  // For SMOLVM_CUDA_ENDPOINT.
  std::string endpoint() const { return "unix:" + folder_ + "/socket"; }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace smolvm::bench
