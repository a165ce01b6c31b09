#include "machine/util/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "machine/util/failure.h"

namespace smolvm::machine {
namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path, size_t limit) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) Fail("cannot read {}: {}", path.string(), ErrnoText());
  std::string text;
  char buffer[65536];
  while (true) {
    const ssize_t n = read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) Fail("cannot read {}: {}", path.string(), ErrnoText());
    if (n == 0) return text;
    text.append(buffer, n);
    if (text.size() > limit) Fail("{} is larger than {} bytes", path.string(), limit);
  }
}

void WriteFileAtomically(const fs::path& path, std::string_view text) {
  const fs::path next = path.string() + ".new." + std::to_string(getpid());
  UniqueFd fd(open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd.valid()) Fail("cannot write {}: {}", next.string(), ErrnoText());
  while (!text.empty()) {
    const ssize_t n = write(fd.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      unlink(next.c_str());
      Fail("cannot write {}: {}", next.string(), ErrnoText(error));
    }
    text.remove_prefix(n);
  }
  if (rename(next.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(next.c_str());
    Fail("cannot write {}: {}", path.string(), ErrnoText(error));
  }
}

std::string FileTail(const fs::path& path, size_t bytes) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return {};
  const off_t size = lseek(fd.get(), 0, SEEK_END);
  const off_t from = size > static_cast<off_t>(bytes) ? size - static_cast<off_t>(bytes) : 0;
  std::string text(size - from, '\0');
  const ssize_t n = pread(fd.get(), text.data(), text.size(), from);
  text.resize(n > 0 ? n : 0);
  return text;
}

void MakeFolders(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) Fail("cannot make the folder {}: {}", path.string(), error.message());
}

namespace {

// Removes what the folder `name` under `parent_fd` holds, then the folder.
bool RemoveFolderAt(int parent_fd, const char* name) {
  UniqueFd fd(openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() && errno == EACCES) {
    fchmodat(parent_fd, name, 0700, 0);
    fd.reset(openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  if (!fd.valid()) return errno == ENOENT;
  struct stat status;
  if (fstat(fd.get(), &status) == 0 && (status.st_mode & 0700) != 0700) fchmod(fd.get(), 0700);
  DIR* folder = fdopendir(dup(fd.get()));
  if (folder == nullptr) return false;
  bool whole = true;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view child = entry->d_name;
    if (child == "." || child == "..") continue;
    if (unlinkat(fd.get(), entry->d_name, 0) == 0 || errno == ENOENT) continue;
    whole = RemoveFolderAt(fd.get(), entry->d_name) && whole;
  }
  closedir(folder);
  return (unlinkat(parent_fd, name, AT_REMOVEDIR) == 0 || errno == ENOENT) && whole;
}

}  // namespace

bool RemoveTree(const fs::path& path) {
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return true;
  return RemoveFolderAt(AT_FDCWD, path.c_str());
}

std::string RandomHex(size_t bytes) {
  std::vector<unsigned char> raw(bytes);
  if (getrandom(raw.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    Fail("the kernel gave no random bytes: {}", ErrnoText());
  }
  std::string text;
  for (const unsigned char byte : raw) text += fmt::format("{:02x}", byte);
  return text;
}

UniqueFd LockFile(const fs::path& path, bool wait) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) Fail("cannot open {}: {}", path.string(), ErrnoText());
  while (flock(fd.get(), LOCK_EX | (wait ? 0 : LOCK_NB)) != 0) {
    if (errno == EWOULDBLOCK) return UniqueFd();
    if (errno != EINTR) Fail("cannot lock {}: {}", path.string(), ErrnoText());
  }
  return fd;
}

TempFolder::TempFolder(const fs::path& parent) {
  MakeFolders(parent);
  const std::string name = RandomHex(6);
  path_ = parent / name;
  lock_path_ = parent / (name + ".lock");
  lock_ = LockFile(lock_path_, true);
  if (mkdir(path_.c_str(), 0700) != 0) {
    Fail("cannot make the folder {}: {}", path_.string(), ErrnoText());
  }
}

TempFolder::~TempFolder() {
  RemoveTree(path_);
  unlink(lock_path_.c_str());
}

void TempFolder::RemoveStale(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".lock") continue;
    const UniqueFd lock = LockFile(it->path(), false);
    if (!lock.valid()) continue;
    fs::path folder = it->path();
    folder.replace_extension();
    RemoveTree(folder);
    unlink(it->path().c_str());
  }
}

}  // namespace smolvm::machine
