// A launcher's connection to a machine's supervisor.
#pragma once

#include <string>

#include "machine/state/store.h"
#include "machine/util/unique_fd.h"

namespace smolvm::machine {

class MachineLink {
 public:
  // Starts the supervisor of a machine whose `lock` we hold, and owns the machine until Release.
  static MachineLink Start(const MachineStore& store, const MachineRecord& record, UniqueFd lock);
  // Connects to a running one; throws Failure when it cannot be reached.
  static MachineLink Connect(const MachineEntry& entry);

  // Waits until the machine is ready. Throws Failure with the supervisor's reason.
  void WaitReady(uint32_t timeout_s);
  // A fresh connection to the agent.
  UniqueFd OpenExec();
  void Release();
  // Ends the machine (`force`: without asking it) and waits until all of it is gone.
  void Stop(bool force);
  // Prints what the supervisor has to tell, without waiting.
  void SayNotes();
  // Why a machine ended under us: the supervisor's words, if it had any.
  std::string WhyEnded();

 private:
  MachineLink(UniqueFd socket, std::string name)
      : socket_(std::move(socket)), name_(std::move(name)) {}

  UniqueFd socket_;
  std::string name_;
  std::string ended_;  // why, when that came before somebody asked
};

}  // namespace smolvm::machine
