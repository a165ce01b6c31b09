#include "machine/image/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "machine/util/failure.h"
#include "machine/util/tool.h"
#include "protocol/base/sha256.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

UniqueFd OpenWithin(const fs::path& tree, const char* path, int flags) {
  const UniqueFd root(open(tree.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  open_how how{};
  how.flags = static_cast<unsigned>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_IN_ROOT;
  return UniqueFd(syscall(SYS_openat2, root.get(), path, &how, sizeof how));
}

bool FolderHolds(const fs::path& tree, const char* folder, const std::string& prefix) {
  UniqueFd fd = OpenWithin(tree, folder, O_RDONLY | O_DIRECTORY);
  if (!fd.valid()) return false;
  DIR* stream = fdopendir(fd.release());
  bool found = false;
  while (const dirent* entry = readdir(stream)) {
    found = found || std::string(entry->d_name).rfind(prefix, 0) == 0;
  }
  closedir(stream);
  return found;
}

void AddFolder(Sha256* hash, const fs::path& folder, const std::string& name) {
  std::error_code error;
  std::vector<fs::path> children;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    children.push_back(it->path());
  }
  if (error) Fail("the image folder {} cannot be read: {}", folder.string(), error.message());
  std::sort(children.begin(), children.end());
  for (const fs::path& child : children) {
    struct stat status;
    if (lstat(child.c_str(), &status) != 0) continue;
    const std::string child_name = name + "/" + child.filename().string();
    hash->AddField(child_name);
    hash->AddField(fmt::format("{} {} {} {}.{} {} {}", status.st_mode,
                               S_ISDIR(status.st_mode) ? 0 : status.st_size, status.st_uid,
                               status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_gid,
                               status.st_ctim.tv_sec));
    if (S_ISDIR(status.st_mode)) AddFolder(hash, child, child_name);
  }
}

}  // namespace

const char* LibcName(Libc libc) {
  switch (libc) {
    case Libc::kGlibc:
      return "glibc";
    case Libc::kMusl:
      return "musl";
    case Libc::kNone:
      break;
  }
  return "none";
}

Libc FindLibc(const fs::path& tree) {
  for (const char* folder : {"lib64", "lib", "usr/lib64", "usr/lib"}) {
    if (FolderHolds(tree, folder, "ld-linux-")) return Libc::kGlibc;
  }
  return FolderHolds(tree, "lib", "ld-musl-") ? Libc::kMusl : Libc::kNone;
}

std::string FingerprintTree(const fs::path& tree) {
  Sha256 hash;
  AddFolder(&hash, tree, "");
  return hash.Finish();
}

void WriteErofs(const fs::path& tree, const fs::path& target, const Expansion& expansion) {
  expansion.CheckTree(tree);
  std::vector<std::string> argv = {"mkfs.erofs", "--quiet"};
  if (geteuid() != 0) argv.insert(argv.end(), {"--all-root", "-x-1"});
  argv.insert(argv.end(), {target.string(), tree.string()});
  MustRun(argv,
          {.doing = "writing the image's disk", .problem = [&] { return expansion.Problem(); }});
}

}  // namespace smolvm::machine
