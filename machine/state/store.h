// The machines of this user: one folder each under the state folder.
//
// A machine runs while its supervisor holds the lock in its folder, so what a killed one left is
// told from a live one without guessing at process ids.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "machine/state/record.h"
#include "machine/util/unique_fd.h"

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
  // Takes the lock of a stopped machine; invalid when it runs.
  UniqueFd Lock(const std::string& name);

  std::vector<MachineEntry> List();
  std::optional<MachineEntry> Find(const std::string& name);
  // Throws Failure that names the machine when there is none.
  MachineEntry Get(const std::string& name);
  void Remove(const std::string& name);

  // Removes what dead ephemeral machines left.
  void Reap();

  std::filesystem::path FolderOf(const std::string& name) const { return machines_ / name; }

 private:
  UniqueFd LockStore();

  const std::filesystem::path machines_;
};

// A name is a letter or digit, then letters, digits, '.', '_' and '-', 63 at most.
bool ValidMachineName(const std::string& name);
// "vm-5d98e4be"
std::string NewMachineName();

}  // namespace smolvm::machine
