#include "machine/state/store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cerrno>

#include "machine/util/failure.h"
#include "machine/util/files.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

constexpr char kRecord[] = "machine.json";
constexpr char kLock[] = "lock";
// What folders are called before they are a machine, and after. No machine's name begins so.
constexpr char kUnfinished[] = ".new-";
constexpr char kRemoved[] = ".gone-";

std::vector<fs::path> Folders(const fs::path& parent) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory()) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool IsSameFile(const UniqueFd& fd, const fs::path& path) {
  struct stat opened, there;
  return fstat(fd.get(), &opened) == 0 && stat(path.c_str(), &there) == 0 &&
         opened.st_dev == there.st_dev && opened.st_ino == there.st_ino;
}

// Two who look share the lock; only a holder keeps them out.
bool IsHeld(const fs::path& lock) {
  const UniqueFd fd(open(lock.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() && flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

}  // namespace

bool RemoveMachineFolder(const fs::path& folder) {
  const fs::path removed =
      folder.parent_path() / (kRemoved + folder.filename().string() + "-" + RandomHex(4));
  std::error_code error;
  fs::rename(folder, removed, error);
  return RemoveTree(error ? folder : removed);
}

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
  const fs::path path = FolderOf(name) / kLock;
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  // The one that was opened may have been a machine's that is removed by now.
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0 || !IsSameFile(lock, path)) {
    return UniqueFd();
  }
  return lock;
}

bool MachineStore::Locked(const std::string& name) const { return IsHeld(FolderOf(name) / kLock); }

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
    entry.running = IsHeld(folder / kLock);
  } catch (const Failure& failure) {
    if (!fs::exists(folder)) return std::nullopt;  // it ended while we looked
    Fail("{}: {}", (folder / kRecord).string(), failure.what());
  }
  entry.record.name = name;
  return entry;
}

MachineEntry MachineStore::Get(const std::string& name) {
  auto entry = Find(name);
  if (entry) return std::move(*entry);
  const std::string others = Names();
  if (others.empty()) Fail("there is no machine named '{}', nor any other", name);
  Fail("there is no machine named '{}'; there are: {}", name, others);
}

std::string MachineStore::Names() const {
  constexpr size_t kMost = 10;
  std::vector<std::string> found;
  for (const fs::path& folder : Folders(machines_)) {
    if (ValidMachineName(folder.filename())) found.push_back(folder.filename());
  }
  const bool more = found.size() > kMost;
  if (more) found.resize(kMost);
  return fmt::format("{}{}", fmt::join(found, ", "), more ? ", ..." : "");
}

void MachineStore::Remove(const std::string& name) {
  if (!RemoveMachineFolder(FolderOf(name))) {
    Fail("the folder {} cannot be removed: {}", FolderOf(name).string(), ErrnoText());
  }
}

void MachineStore::Reap() {
  if (!fs::exists(machines_)) return;
  const UniqueFd store = LockStore();
  for (const fs::path& folder : Folders(machines_)) {
    const std::string name = folder.filename();
    if (name.starts_with(kUnfinished) || name.starts_with(kRemoved)) {
      RemoveTree(folder);
      continue;
    }
    const auto entry = Find(name);
    if (!entry || !entry->record.ephemeral || entry->running) continue;
    if (const UniqueFd lock = Lock(name); lock.valid()) RemoveMachineFolder(folder);
  }
}

}  // namespace smolvm::machine
