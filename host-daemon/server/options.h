// smolvm-cuda-daemon's command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "protocol/log/log.h"
#include "protocol/transport/endpoint.h"

namespace smolvm::server {

struct Options {
  std::vector<transport::Endpoint> listen;
  uint32_t max_sessions = 64;
  uint32_t workers_ready = 2;
  uint32_t drain_seconds = 10;
  log::Level log_level = log::Level::kInfo;
  std::string log_level_name = "info";
  std::string worker;        // path of smolvm-cuda-worker
  std::string vsock_device;  // path of smolvm-cuda-vsock
  std::vector<std::string> worker_arguments;
};

// Returns -1 to go on, else the exit status (what was asked for or what is wrong has been printed).
int ParseOptions(int argc, char** argv, Options* options);

// "1024" and "1024M" are MiB; also K, G and T. False for anything else.
bool ParseSize(const std::string& text, uint64_t* bytes);

}  // namespace smolvm::server
