// The generated table of calls that the host serves.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host-daemon/session/call.h"

namespace smolvm::dispatch {

class Dispatcher;

struct CallRow {
  uint32_t id;
  session::CallTraits traits;
  uint32_t (*serve)(Dispatcher& dispatcher, session::Call& call);
};

extern const CallRow kCalls[];
extern const size_t kCallCount;

}  // namespace smolvm::dispatch
