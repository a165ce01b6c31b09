// The files of a share that the guest's kernel knows, by node id.
//
// Each is held by an O_PATH descriptor, and every step is one component below a held folder with
// O_NOFOLLOW: neither `..`, nor links, nor a rename at the wrong time lead out of the share.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "protocol/base/unique_fd.h"

namespace smolvm::machine {

class InodeTable {
 public:
  static constexpr uint64_t kRoot = 1;  // FUSE_ROOT_ID

  // False when it cannot be opened.
  bool OpenRoot(const std::string& path);

  // The O_PATH descriptor of a node, or -1.
  int Fd(uint64_t node) const;
  // Finds `name` in `parent` and counts one more reference for the guest. 0 or an errno.
  int Lookup(uint64_t parent, const std::string& name, uint64_t* node, struct stat* status);
  void Forget(uint64_t node, uint64_t count);

  // Opens a held regular file or folder anew with `flags`; -1 with errno for anything else, since
  // opening a pipe or a device of the host would act on it.
  int Reopen(uint64_t node, int flags) const;
  // "/proc/self/fd/N", for calls that take no descriptor.
  std::string ProcPath(uint64_t node) const;

 private:
  struct Inode {
    UniqueFd fd;
    std::pair<dev_t, ino_t> key;
    uint64_t references = 0;
  };

  std::unordered_map<uint64_t, Inode> inodes_;
  std::map<std::pair<dev_t, ino_t>, uint64_t> nodes_;
  uint64_t next_ = kRoot + 1;
};

// A single name: not empty, not "." or "..", no slash.
bool IsPlainName(const std::string& name);

}  // namespace smolvm::machine
