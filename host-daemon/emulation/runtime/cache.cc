#include "host-daemon/emulation/runtime/cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "protocol/base/file_status.h"
#include "protocol/base/sha256.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

constexpr size_t kDigestChars = 64;
constexpr size_t kMaxObjectBytes = 256 << 20;

// Once: a full disk would otherwise have a line for each kernel.
void NoteUnwritable(int error) {
  static std::atomic<bool> noted{false};
  if (noted.exchange(true)) return;
  log::Warn("event=cache_unwritable reason={}", log::Quote(strerror(error)));
}

}  // namespace

struct CodeCache::State {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<codegen::LoadedCode>> live;
  int directory = -1;  // opened once, so that a sandboxed worker needs no path later
};

CodeCache::CodeCache() : state_(new State) {
  const char* path = getenv("SMOLVM_CUDA_EMULATION_CACHE");
  if (path == nullptr || *path == '\0' || strcmp(path, "off") == 0) return;
  mkdir(path, 0700);
  state_->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (state_->directory < 0) {
    log::Warn("event=cache_unusable directory={} reason={}", log::Quote(path),
              log::Quote(strerror(errno)));
  }
}

CodeCache& CodeCache::Get() {
  static auto* cache = new CodeCache;
  return *cache;
}

std::shared_ptr<codegen::LoadedCode> CodeCache::Find(const std::string& key) {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->live.find(key);
  return found == state_->live.end() ? nullptr : found->second.lock();
}

void CodeCache::Keep(const std::string& key, const std::shared_ptr<codegen::LoadedCode>& code) {
  std::lock_guard lock(state_->mutex);
  std::erase_if(state_->live, [](const auto& entry) { return entry.second.expired(); });
  state_->live[key] = code;
}

bool CodeCache::Holds(const std::string& key) {
  if (Find(key) != nullptr) return true;
  return state_->directory >= 0 &&
         faccessat(state_->directory, key.c_str(), R_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

// A file is the digest of the object, then the object.
bool CodeCache::Read(const std::string& key, std::string* object) {
  if (state_->directory < 0) return false;
  const int file = openat(state_->directory, key.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return false;
  struct stat status {};
  bool good = StatusOf(file, &status) && S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
              status.st_size > static_cast<off_t>(kDigestChars) &&
              status.st_size < static_cast<off_t>(kMaxObjectBytes);
  std::string bytes;
  if (good) {
    bytes.resize(static_cast<size_t>(status.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t n = read(file, bytes.data() + done, bytes.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    good = done == bytes.size();
  }
  close(file);
  if (!good) return false;
  *object = bytes.substr(kDigestChars);
  return Sha256Of(*object) == std::string_view(bytes).substr(0, kDigestChars);
}

void CodeCache::Write(const std::string& key, const std::string& object) {
  if (state_->directory < 0) return;
  // Written under another name first: a reader never sees half a file.
  static std::atomic<unsigned> counter{0};
  const std::string temporary = fmt::format("{}.{}.{}", key, getpid(), counter++);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  int file = openat(state_->directory, temporary.c_str(), kFlags, 0600);
  if (file < 0 && errno == EEXIST) {  // of a process that died, whose number is ours now
    unlinkat(state_->directory, temporary.c_str(), 0);
    file = openat(state_->directory, temporary.c_str(), kFlags, 0600);
  }
  if (file < 0) return NoteUnwritable(errno);
  const std::string bytes = Sha256Of(object) + object;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(file, bytes.data() + done, bytes.size() - done);
    if (n <= 0) {
      NoteUnwritable(errno);
      break;
    }
    done += static_cast<size_t>(n);
  }
  close(file);
  if (done != bytes.size() ||
      renameat(state_->directory, temporary.c_str(), state_->directory, key.c_str()) != 0) {
    unlinkat(state_->directory, temporary.c_str(), 0);
  }
}

}  // namespace smolvm::emulation
