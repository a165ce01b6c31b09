#include "machine/state/store.h"

#include <algorithm>
#include <cctype>

#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

constexpr char kRecord[] = "machine.json";
constexpr char kLock[] = "lock";
constexpr char kUnfinished[] = ".new-";

std::vector<fs::path> Folders(const fs::path& parent) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory()) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

bool ValidMachineName(const std::string& name) {
  if (name.empty() || name.size() > 63 || !std::isalnum(static_cast<unsigned char>(name[0]))) {
    return false;
  }
  return std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) || c == '.' || c == '_' || c == '-');
  });
}

std::string NewMachineName() { return "vm-" + RandomHex(4); }

UniqueFd MachineStore::LockStore() {
  MakeFolders(machines_);
  return LockFile(machines_ / ".lock", true);
}

UniqueFd MachineStore::Create(const MachineRecord& record) {
  const UniqueFd store = LockStore();
  const fs::path folder = FolderOf(record.name);
  if (fs::exists(folder)) Fail("there is a machine named '{}' already", record.name);
  const fs::path unfinished = machines_ / (kUnfinished + record.name);
  RemoveTree(unfinished);
  MakeFolders(unfinished);
  fs::permissions(unfinished, fs::perms::owner_all);
  UniqueFd lock = LockFile(unfinished / kLock, true);
  try {
    WriteFileAtomically(unfinished / kRecord, EncodeRecord(record));
    fs::rename(unfinished, folder);
  } catch (const std::exception& error) {
    RemoveTree(unfinished);
    Fail("the machine's folder cannot be made: {}", error.what());
  }
  return lock;
}

void MachineStore::Write(const MachineRecord& record) {
  WriteFileAtomically(FolderOf(record.name) / kRecord, EncodeRecord(record));
}

UniqueFd MachineStore::Lock(const std::string& name) {
  return LockFile(FolderOf(name) / kLock, false);
}

std::vector<MachineEntry> MachineStore::List() {
  std::vector<MachineEntry> entries;
  for (const fs::path& folder : Folders(machines_)) {
    if (auto entry = Find(folder.filename())) entries.push_back(std::move(*entry));
  }
  return entries;
}

std::optional<MachineEntry> MachineStore::Find(const std::string& name) {
  if (!ValidMachineName(name)) return std::nullopt;
  const fs::path folder = FolderOf(name);
  if (!fs::exists(folder / kRecord)) return std::nullopt;
  MachineEntry entry;
  entry.folder = folder;
  try {
    entry.record = DecodeRecord(ReadFile(folder / kRecord, 16 << 20));
    entry.running = !LockFile(folder / kLock, false).valid();
  } catch (const Failure& failure) {
    if (!fs::exists(folder)) return std::nullopt;  // it ended while we looked
    Fail("{}: {}", (folder / kRecord).string(), failure.what());
  }
  entry.record.name = name;
  return entry;
}

MachineEntry MachineStore::Get(const std::string& name) {
  auto entry = Find(name);
  if (!entry) Fail("there is no machine named '{}'", name);
  return std::move(*entry);
}

void MachineStore::Remove(const std::string& name) {
  if (!RemoveTree(FolderOf(name))) {
    Fail("the folder {} cannot be removed: {}", FolderOf(name).string(), ErrnoText());
  }
}

void MachineStore::Reap() {
  if (!fs::exists(machines_)) return;
  const UniqueFd store = LockStore();
  for (const fs::path& folder : Folders(machines_)) {
    if (folder.filename().string().rfind(kUnfinished, 0) == 0) {
      RemoveTree(folder);
      continue;
    }
    const auto entry = Find(folder.filename());
    if (entry && entry->record.ephemeral && !entry->running) RemoveTree(folder);
  }
}

}  // namespace smolvm::machine
