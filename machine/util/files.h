// Small file helpers: whole-file reads and writes, temporary folders, and removal that copes with
// read-only folders (an unpacked image holds some).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

// Throws Failure when the file cannot be read or is larger than `limit`.
std::string ReadFile(const std::filesystem::path& path, size_t limit = 1 << 20);
// Writes a temporary neighbour and renames it, so that a reader sees the old or the new text.
void WriteFileAtomically(const std::filesystem::path& path, std::string_view text);
// The last lines of a text file, at most `bytes`; empty when there is none.
std::string FileTail(const std::filesystem::path& path, size_t bytes);
void MakeFolders(const std::filesystem::path& path);
// Removes a tree without following links; makes closed folders writable first. False when some of
// it is left.
bool RemoveTree(const std::filesystem::path& path);
// A lower-case hexadecimal string of `bytes` random bytes.
std::string RandomHex(size_t bytes);

// A folder under `parent` that is removed with the object.
//
// A lock beside it tells a live one from what a killed process left; RemoveStale removes the
// latter.
class TempFolder {
 public:
  explicit TempFolder(const std::filesystem::path& parent);
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  static void RemoveStale(const std::filesystem::path& parent);

 private:
  std::filesystem::path path_;
  std::filesystem::path lock_path_;
  UniqueFd lock_;
};

// Opens (makes) a file and takes an exclusive flock on it. `wait`: until it is free; otherwise an
// invalid descriptor when somebody holds it.
UniqueFd LockFile(const std::filesystem::path& path, bool wait);

}  // namespace smolvm::machine
