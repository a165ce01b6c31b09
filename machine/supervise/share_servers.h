// The processes that serve a machine's shares: one for each share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>

#include "machine/state/record.h"
#include "protocol/base/log_limit.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

// A number here is always one of a child that nobody has waited for yet, and so of no other
// process: whoever waits for a child says so.
class ShareServers {
 public:
  // Reconnects of a guest, all shares together: a mount makes one connection.
  static constexpr double kBurst = 64, kPerSecond = 1;

  // Serves `fd` in a process of its own. The one that the share had ends: the guest has given its
  // connection up. False when the guest has come too often, or there is no process to be had.
  bool Start(size_t index, const Share& share, UniqueFd fd);
  void WasCollected(pid_t pid);
  // Waits for them to end by themselves, with their guest gone, and then ends them.
  void End();
  size_t count() const { return pids_.size(); }

 private:
  std::map<size_t, pid_t> pids_;  // by share
  LogLimit connections_{kBurst, kPerSecond};
};

}  // namespace smolvm::machine
