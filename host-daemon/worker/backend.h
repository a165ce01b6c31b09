// What a worker needs of the library that it serves. host-daemon/dispatch implements it over a
// driver table; the daemon's tests implement it over nothing at all.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "host-daemon/session/call.h"
#include "protocol/api/session.wire.h"

namespace smolvm::worker {

struct BackendPolicy {
  // Bytes of device memory that the session may have; 0: as much as there is.
  uint64_t memory_limit = 0;
  // The memory file that this process's stdout is: what kernels print ends up there.
  int output_fd = -1;
  // The same for stderr: the text of failed assertions.
  int errors_fd = -1;
  // Whether device memory lies at its addresses in this process too (the emulation device's).
  bool device_memory_is_addressable = false;
};

// Lifetime: until the process ends.
// Threads: one, before the session's lanes start.
class Backend {
 public:
  virtual ~Backend() = default;
  // key=value fields for the log: "driver_version=13000 devices=1".
  virtual std::string Describe() const = 0;
  // Everything in the reply but status, message, protocol_version, daemon_version and
  // callback_token. May set `status` to refuse the guest, and `message` to say why.
  virtual void FillHello(const api::Hello& hello, api::HelloReply* reply) = 0;
  virtual std::unique_ptr<session::Handler> MakeHandler(const api::Hello& hello) = 0;
};

// Loads a driver library (a path, or a name for the loader) and initialises it; it must have at
// least one device. Null with a one-line reason. Called before any session is known, so that a
// guest need not wait for it; may be called a second time with another library after a failure.
std::unique_ptr<Backend> LoadBackend(const std::string& library, const BackendPolicy& policy,
                                     std::string* error);

}  // namespace smolvm::worker
