// A launcher's connection to a machine's supervisor, and what is done to a machine whatever it is
// doing at that moment.
//
// A machine is stopped when its lock is free (machine/state/store.h). Between that and a supervisor
// that answers it is being started or ended by somebody else: what needs one or the other waits,
// and asks again.
#pragma once

#include <optional>
#include <string>

#include "machine/state/store.h"
#include "machine/util/failure.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

// A machine that did not become ready, for KVM failed it: under TCG it may.
class KvmFailure : public Failure {
 public:
  using Failure::Failure;
};

class MachineLink {
 public:
  // Starts the supervisor of a machine whose `lock` we hold, and owns the machine until Release.
  static MachineLink Start(const MachineStore& store, const MachineRecord& record, UniqueFd lock);
  // Connects to a running one. Nothing when none listens (yet, or any more).
  static std::optional<MachineLink> Connect(const std::filesystem::path& folder,
                                            const std::string& name);

  // Waits until the machine is ready. False when it is being stopped. Throws Failure with the
  // supervisor's reason, or when one that we started ends without any.
  bool WaitReady(uint32_t timeout_s);
  // A fresh connection to the agent; invalid when the machine is being stopped.
  UniqueFd OpenExec();
  void Release();
  // Ends the machine (`force`: without asking it) and waits until its supervisor is gone.
  void Stop(bool force);
  // Whether the machine is running or will be; false when it is being stopped. Takes the
  // supervisor's first word, so only for a fresh connection.
  bool Stays();
  // Prints what the supervisor has to tell, without waiting.
  void SayNotes();
  // Why a machine ended under us: the supervisor's words, if it had any.
  std::string WhyEnded();

 private:
  MachineLink(UniqueFd socket, std::string name, bool owner)
      : socket_(std::move(socket)), name_(std::move(name)), owner_(owner) {}

  UniqueFd socket_;
  std::string name_;
  bool owner_;         // we started it
  std::string ended_;  // why, when that came before somebody asked
};

// Returns when nothing is left of the machine that ran: at once when it is stopped or gone already.
// Throws Failure when that takes too long.
void StopMachine(const MachineStore& store, const std::string& name, bool force);

// Whether the machine is running or being started, and not being stopped. Waits where that is
// undecided.
bool IsUp(const MachineStore& store, const std::string& name);

// The lock of a machine that is stopped, or about to be. Invalid when there is no such machine (any
// more); throws Failure when it runs on.
UniqueFd LockStopped(MachineStore* store, const std::string& name);

}  // namespace smolvm::machine
