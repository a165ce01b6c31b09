#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::gpu {

// A read-only view of a host's files below a root directory: "/" for this host, a folder of
// fixtures in tests. Every path is absolute as the host would spell it; links are resolved inside
// the root (openat2's RESOLVE_IN_ROOT, where the kernel has it), so that a fixture never reads the
// real host.
//
// *Threads*: stateless; one object may be used from several threads.
class HostRoot {
 public:
  explicit HostRoot(std::string directory = "/");

  // What stands at `path`, links followed. kMissing also when it cannot be looked at.
  enum class Entry { kMissing, kFile, kDirectory, kSocket, kOther };
  Entry Look(std::string_view path) const;
  bool Exists(std::string_view path) const { return Look(path) != Entry::kMissing; }

  // A file's text. On failure `error` says why (errno's text, "not a regular file", "larger than
  // …") and `text` is empty. Never blocks on a FIFO, never reads more than `limit` bytes.
  struct Text {
    std::string text;
    std::string error;
    bool ok() const { return error.empty(); }
  };
  Text Read(std::string_view path, std::size_t limit = kSmallFile) const;

  // The names in a directory, sorted by byte, without "." and ".."; nullopt when it cannot be read.
  std::optional<std::vector<std::string>> List(std::string_view path) const;

  // Where the symbolic link at `path` points, as written; nullopt when it is none.
  std::optional<std::string> LinkTarget(std::string_view path) const;

  const std::string& directory() const { return directory_; }

  // Enough for any sysfs or procfs attribute that is read here.
  static constexpr std::size_t kSmallFile = 64 * 1024;

 private:
  // A descriptor, or -1 with errno set.
  int Open(std::string_view path, int flags) const;

  std::string directory_;
};

}  // namespace smolvm::gpu
