#include "container/host_root.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace smolvm::gpu {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

int OpenInRoot(const std::string& root, const std::string& relative, int flags) {
  const Descriptor top(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top) return -1;
  open_how how = {};
  how.flags = static_cast<unsigned>(flags);
  how.resolve = RESOLVE_IN_ROOT;
  return static_cast<int>(syscall(SYS_openat2, top.get(), relative.c_str(), &how, sizeof(how)));
}

HostRoot::Text Failure(std::string reason) { return {"", std::move(reason)}; }

}  // namespace

HostRoot::HostRoot(std::string directory) : directory_(std::move(directory)) {
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
  if (directory_.empty()) directory_ = "/";
}

int HostRoot::Open(std::string_view path, int flags) const {
  flags |= O_CLOEXEC;
  const std::string relative(path.substr(std::min(path.find_first_not_of('/'), path.size())));
  if (directory_ == "/") return open(("/" + relative).c_str(), flags);
  const int fd = OpenInRoot(directory_, relative.empty() ? "." : relative, flags);
  // Kernels before 5.6 and some sandboxes have no openat2: links then resolve on the real host.
  if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
    return open((directory_ + "/" + relative).c_str(), flags);
  }
  return fd;
}

HostRoot::Entry HostRoot::Look(std::string_view path) const {
  const Descriptor fd(Open(path, O_PATH));
  struct stat status = {};
  if (!fd || fstat(fd.get(), &status) != 0) return Entry::kMissing;
  if (S_ISREG(status.st_mode)) return Entry::kFile;
  if (S_ISDIR(status.st_mode)) return Entry::kDirectory;
  if (S_ISSOCK(status.st_mode)) return Entry::kSocket;
  return Entry::kOther;
}

HostRoot::Text HostRoot::Read(std::string_view path, std::size_t limit) const {
  // O_NONBLOCK: opening a FIFO that nobody writes must not hang.
  const Descriptor fd(Open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  if (!fd || fstat(fd.get(), &status) != 0) return Failure(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) return Failure("not a regular file");
  Text result;
  char block[16 * 1024];
  while (true) {
    const ssize_t n = read(fd.get(), block, sizeof(block));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failure(std::strerror(errno));
    if (n == 0) return result;
    if (static_cast<std::size_t>(n) > limit - result.text.size()) {
      return Failure("larger than " + std::to_string(limit) + " bytes");
    }
    result.text.append(block, static_cast<std::size_t>(n));
  }
}

std::optional<std::vector<std::string>> HostRoot::List(std::string_view path) const {
  Descriptor fd(Open(path, O_RDONLY | O_DIRECTORY));
  if (!fd) return std::nullopt;
  DIR* directory = fdopendir(fd.get());
  if (directory == nullptr) return std::nullopt;
  fd.release();  // closedir closes it
  std::vector<std::string> names;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> HostRoot::LinkTarget(std::string_view path) const {
  const Descriptor fd(Open(path, O_PATH | O_NOFOLLOW));
  if (!fd) return std::nullopt;
  char target[PATH_MAX];
  const ssize_t length = readlinkat(fd.get(), "", target, sizeof(target));
  if (length <= 0 || length == static_cast<ssize_t>(sizeof(target))) return std::nullopt;
  return std::string(target, static_cast<std::size_t>(length));
}

}  // namespace smolvm::gpu
