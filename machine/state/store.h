// The machines of this user: one folder each under the state folder.
//
// What a machine is doing has one source: the lock in its folder. Its supervisor holds it, and so
// do the processes that write the machine's files (QEMU, the shares' servers), until the last of
// them is gone; whoever starts or removes a stopped machine holds it meanwhile. So what a killed
// one left is told from a live one without guessing at process ids, and a machine that is found
// stopped can be started or removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "machine/state/record.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

struct MachineEntry {
  MachineRecord record;
  std::filesystem::path folder;
  bool running = false;
};

class MachineStore {
 public:
  explicit MachineStore(const std::filesystem::path& state) : machines_(state / "machines") {}

  // Makes the folder and writes the record; the returned lock keeps the machine "running". Throws
  // Failure when the name is taken.
  UniqueFd Create(const MachineRecord& record);
  void Write(const MachineRecord& record);
  // Takes the lock of a stopped machine; invalid when somebody holds it, or the machine is gone.
  UniqueFd Lock(const std::string& name);
  // Whether somebody holds the lock. Only looks: never in the way of another look.
  bool Locked(const std::string& name) const;

  std::vector<MachineEntry> List();
  std::optional<MachineEntry> Find(const std::string& name);
  // Throws Failure that names the machine, and those that there are, when there is none.
  MachineEntry Get(const std::string& name);
  // "a, b": the first of those that there are, or "".
  std::string Names() const;
  // The caller holds the lock.
  void Remove(const std::string& name);

  // Removes what dead ephemeral machines left.
  void Reap();

  std::filesystem::path FolderOf(const std::string& name) const { return machines_ / name; }

 private:
  UniqueFd LockStore();

  const std::filesystem::path machines_;
};

// Takes a machine's folder away. Its name is free at once, however long that takes. False when some
// of it is left.
bool RemoveMachineFolder(const std::filesystem::path& folder);

// A name is a letter or digit, then letters, digits, '.', '_' and '-', 63 at most.
bool ValidMachineName(const std::string& name);
// "vm-5d98e4be"
std::string NewMachineName();

}  // namespace smolvm::machine
