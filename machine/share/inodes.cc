#include "machine/share/inodes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace smolvm::machine {
namespace {

// Below any descriptor limit that a host is likely to set; the guest's kernel forgets as it needs
// to.
constexpr size_t kMaxInodes = 500000;

}  // namespace

bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

bool InodeTable::OpenRoot(const std::string& path) {
  Inode root;
  root.fd.reset(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat status;
  if (!root.fd.valid() || fstat(root.fd.get(), &status) != 0) return false;
  root.key = {status.st_dev, status.st_ino};
  root.references = 1;
  nodes_[root.key] = kRoot;
  inodes_[kRoot] = std::move(root);
  return true;
}

int InodeTable::Fd(uint64_t node) const {
  const auto found = inodes_.find(node);
  return found == inodes_.end() ? -1 : found->second.fd.get();
}

int InodeTable::Lookup(uint64_t parent, const std::string& name, uint64_t* node,
                       struct stat* status) {
  const int folder = Fd(parent);
  if (folder < 0) return ESTALE;
  if (!IsPlainName(name)) return EINVAL;
  UniqueFd fd(openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() || fstat(fd.get(), status) != 0) return errno;
  const std::pair<dev_t, ino_t> key = {status->st_dev, status->st_ino};
  auto known = nodes_.find(key);
  if (known == nodes_.end()) {
    if (inodes_.size() >= kMaxInodes) return ENFILE;
    known = nodes_.emplace(key, next_++).first;
    inodes_[known->second] = {std::move(fd), key, 0};
  }
  *node = known->second;
  ++inodes_[*node].references;
  return 0;
}

void InodeTable::Forget(uint64_t node, uint64_t count) {
  const auto found = inodes_.find(node);
  if (node == kRoot || found == inodes_.end()) return;
  found->second.references -= std::min(count, found->second.references);
  if (found->second.references > 0) return;
  nodes_.erase(found->second.key);
  inodes_.erase(found);
}

std::string InodeTable::ProcPath(uint64_t node) const {
  return fmt::format("/proc/self/fd/{}", Fd(node));
}

int InodeTable::Reopen(uint64_t node, int flags) const {
  struct stat status;
  if (Fd(node) < 0 || fstat(Fd(node), &status) != 0) {
    errno = ESTALE;
    return -1;
  }
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return open(ProcPath(node).c_str(), (flags & ~O_NOFOLLOW) | O_CLOEXEC);
}

}  // namespace smolvm::machine
