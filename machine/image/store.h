// The cache of images: an erofs disk and a description each, keyed by content.
#pragma once

#include <filesystem>
#include <string>

#include "machine/image/source.h"
#include "machine/image/unpack.h"

namespace smolvm::machine {

struct Image {
  std::filesystem::path disk;
  ImageConfig config;
  std::string libc;  // "glibc", "musl" or "none"
};

// The image that `argument` names, made or fetched when it is not in the cache. An empty argument
// is the default image, which alone has a substitute when no registry can be reached. `limit`: what
// it may come to, unpacked (expansion.h).
Image EnsureImage(const std::string& argument, const std::filesystem::path& cache, uint64_t limit);

// Removes an image's files and the names that lead to it.
void DropImage(const std::filesystem::path& disk, const std::filesystem::path& cache);

}  // namespace smolvm::machine
