// Runs one command in a machine from here: carries this process's streams, signals and terminal.
#pragma once

#include <cstdint>
#include <functional>

#include "machine/wire/messages.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

struct SessionEnd {
  bool lost = false;    // the machine went away before the command ended
  bool forced = false;  // a second signal, or one that was not obeyed
  bool timed_out = false;
  ExitReport report;
};

// `agent`: a fresh connection. Size and kind of the terminal are filled into the request. `tick` is
// called several times a second.
SessionEnd RunSession(UniqueFd agent, ExecRequest request, uint64_t timeout_ms,
                      const std::function<void()>& tick);

}  // namespace smolvm::machine
