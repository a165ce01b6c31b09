#include "machine/agent/mount.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include <filesystem>

#include "machine/util/failure.h"

namespace smolvm::agent {

using machine::ErrnoText;
using machine::Fail;

bool TryMount(const char* source, const std::string& target, const char* type, unsigned long flags,
              const std::string& options) {
  std::error_code ignored;
  std::filesystem::create_directories(target, ignored);
  return mount(source, target.c_str(), type, flags, options.c_str()) == 0;
}

void Mount(const char* source, const std::string& target, const char* type, unsigned long flags,
           const std::string& options) {
  if (!TryMount(source, target, type, flags, options)) {
    Fail("cannot mount {} ({}) at {}: {}", source, type, target, ErrnoText());
  }
}

UniqueFd DetachCopy(const std::string& path, bool read_only) {
  UniqueFd tree(
      syscall(SYS_open_tree, AT_FDCWD, path.c_str(), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC));
  if (!tree.valid()) Fail("cannot take the mount at {}: {}", path, ErrnoText());
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY;
  if (read_only && syscall(SYS_mount_setattr, tree.get(), "", AT_EMPTY_PATH, &attributes,
                           sizeof attributes) != 0) {
    Fail("cannot make {} read-only: {}", path, ErrnoText());
  }
  return tree;
}

void Attach(const UniqueFd& tree, const std::string& target) {
  MakePath(target);
  if (syscall(SYS_move_mount, tree.get(), "", AT_FDCWD, target.c_str(), MOVE_MOUNT_F_EMPTY_PATH) !=
      0) {
    Fail("cannot mount at {}: {}", target, ErrnoText());
  }
}

void MakePath(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error && !std::filesystem::is_directory(path)) {
    Fail("cannot make {} in the machine: {}", path, error.message());
  }
}

}  // namespace smolvm::agent
