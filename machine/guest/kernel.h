// The guest's kernel: Debian's cloud kernel, fetched with apt, unpacked and kept in the cache. It
// is never installed on the host.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace smolvm::machine {

struct GuestKernel {
  std::filesystem::path folder;         // of the cache
  std::filesystem::path image;          // vmlinuz
  std::filesystem::path modules;        // folder of .ko files
  std::vector<std::string> load_order;  // file names in it
};

// The cached kernel, or a new one when there is none or the last look is more than a week ago (a
// look that fails is no error while an older kernel is there). Works for an ordinary user. Throws
// Failure.
GuestKernel EnsureKernel(const std::filesystem::path& cache);

// The one that machines would boot now, if one has been fetched.
std::optional<GuestKernel> CachedKernel(const std::filesystem::path& cache);

// The kernel in a folder of the cache. Throws Failure.
GuestKernel LoadKernel(const std::filesystem::path& folder);

// The newest package that `meta` (linux-image-cloud-amd64) depends on, from the text of
// `apt-cache depends`. Empty when there is none.
std::string KernelPackageFrom(std::string_view apt_cache_depends);

}  // namespace smolvm::machine
