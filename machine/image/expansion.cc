#include "machine/image/expansion.h"

#include <sys/stat.h>
#include <sys/statvfs.h>

#include <set>
#include <utility>

#include "machine/util/failure.h"

namespace smolvm::machine {
namespace {

namespace fs = std::filesystem;

uint64_t FreeBytes(const fs::path& folder) {
  struct statvfs status {};
  if (statvfs(folder.c_str(), &status) != 0) return UINT64_MAX;  // not to be had: no reason
  return uint64_t{status.f_bavail} * status.f_frsize;
}

struct Sizes {
  uint64_t apparent = 0, taken = 0;
};

// Each file once, however many names it has.
Sizes SizesOf(const fs::path& tree) {
  Sizes sizes;
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  for (fs::recursive_directory_iterator it(tree, error), end; !error && it != end;
       it.increment(error)) {
    struct stat status;
    if (lstat(it->path().c_str(), &status) != 0) continue;
    if (status.st_nlink > 1 && !S_ISDIR(status.st_mode) &&
        !seen.insert({status.st_dev, status.st_ino}).second) {
      continue;
    }
    sizes.taken += static_cast<uint64_t>(status.st_blocks) * 512;
    // Sums of a hostile tree's sizes may be anything.
    if (S_ISREG(status.st_mode) &&
        __builtin_add_overflow(sizes.apparent, static_cast<uint64_t>(status.st_size),
                               &sizes.apparent)) {
      sizes.apparent = UINT64_MAX;
      return sizes;
    }
  }
  return sizes;
}

std::string Readable(uint64_t bytes) {
  return bytes >> 30 != 0 ? fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30))
                          : fmt::format("{} MiB", bytes >> 20);
}

}  // namespace

Expansion::Expansion(fs::path folder, uint64_t limit)
    : folder_(std::move(folder)), limit_(limit), free_before_(FreeBytes(folder_)) {}

std::string Expansion::Problem() const {
  const uint64_t free = FreeBytes(folder_);
  if (free < kReserve) {
    return fmt::format("the disk of {} is nearly full ({} left): make room, or set XDG_CACHE_HOME",
                       folder_.string(), Readable(free));
  }
  // Others write too: looked at closely only when there is a reason.
  if (free_before_ <= free || free_before_ - free <= limit_) return "";
  if (SizesOf(folder_).taken <= limit_) return "";
  return fmt::format("the image is larger than {} when it is unpacked: --image-limit lets more in",
                     Readable(limit_));
}

void Expansion::CheckTree(const fs::path& tree) const {
  const uint64_t bytes = SizesOf(tree).apparent, free = FreeBytes(folder_);
  if (bytes > limit_) {
    Fail("the image's files come to {}, more than {}: --image-limit lets more in", Readable(bytes),
         Readable(limit_));
  }
  if (bytes > free - std::min(free, kReserve)) {
    Fail("the image's files come to {}, and the disk of {} has {} left", Readable(bytes),
         folder_.string(), Readable(free));
  }
}

}  // namespace smolvm::machine
