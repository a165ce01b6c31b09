// Where a daemon listens and a guest connects: `unix:PATH`, `vsock:CID:PORT` (`vsock:PORT` to
// listen), `vhost-user:PATH` (listen only).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace smolvm::transport {

inline constexpr uint32_t kDefaultPort = 7000;
inline constexpr uint32_t kHostCid = 2;  // VMADDR_CID_HOST
inline constexpr char kDefaultEndpoint[] = "vsock:2:7000";

struct Endpoint {
  enum class Kind { kUnix, kVsock, kVhostUser };
  Kind kind = Kind::kUnix;
  std::string path;         // unix, vhost-user
  uint32_t cid = kHostCid;  // vsock
  uint32_t port = kDefaultPort;
};

// False when the text names no endpoint; `error` then says why and what is accepted.
bool ParseEndpoint(std::string_view text, Endpoint* endpoint, std::string* error);
std::string ToString(const Endpoint& endpoint);

// Connects within `timeout_ms`. Returns a stream socket (close-on-exec, blocking), or -1 with
// `error` and errno set.
int Connect(const Endpoint& endpoint, int timeout_ms, std::string* error);
// Binds and listens (close-on-exec). A stale Unix socket that nobody listens on is replaced; a busy
// one is an error.
int Listen(const Endpoint& endpoint, std::string* error);

}  // namespace smolvm::transport
