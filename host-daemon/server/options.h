// smolvm-cuda-daemon's command line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protocol/log/log.h"
#include "protocol/transport/endpoint.h"

namespace smolvm::server {

struct Options {
  std::vector<transport::Endpoint> listen;
  uint32_t max_sessions = 64;
  uint32_t max_sessions_per_peer = 0;  // 0: three quarters of them
  std::vector<uint32_t> peer_cids;     // who may connect by kernel vsock; all when empty
  uint32_t workers_ready = 2;
  uint32_t drain_seconds = 10;
  log::Level log_level = log::Level::kInfo;
  std::string log_level_name = "info";
  std::string worker;        // path of smolvm-cuda-worker
  std::string vsock_device;  // path of smolvm-cuda-vsock
  std::vector<std::string> worker_arguments;
};

// Of one user of a Unix socket, one CID or one vsock device.
inline uint32_t SessionsForAPeer(const Options& options) {
  if (options.max_sessions_per_peer != 0) return options.max_sessions_per_peer;
  return options.max_sessions - options.max_sessions / 4;
}
inline bool MayConnect(const Options& options, std::optional<uint32_t> cid) {
  return !cid || options.peer_cids.empty() ||
         std::ranges::find(options.peer_cids, *cid) != options.peer_cids.end();
}

// Returns -1 to go on, else the exit status (what was asked for or what is wrong has been printed).
int ParseOptions(int argc, char** argv, Options* options);

// "1024" and "1024M" are MiB; also K, G and T. False for anything else.
bool ParseSize(const std::string& text, uint64_t* bytes);

}  // namespace smolvm::server
