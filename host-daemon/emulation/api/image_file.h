#pragma once

#include <cuda.h>

#include <optional>
#include <vector>

#include "protocol/image/image.h"

namespace smolvm::emulation {

// The bytes of a file, up to image::kMaxImageBytes. CUDA_ERROR_FILE_NOT_FOUND, _OPERATING_SYSTEM,
// or _INVALID_IMAGE for an empty one.
CUresult ReadWholeFile(const char* path, std::vector<std::byte>* bytes);

// A module's file in memory, checked so that a loader which trusts the image's own lengths stays
// inside it.
class ImageFile {
 public:
  // CUDA_ERROR_FILE_NOT_FOUND, _OPERATING_SYSTEM, or _INVALID_IMAGE when the file ends before its
  // image does.
  CUresult Read(const char* path);
  const void* image() const { return flat_->image(); }

 private:
  std::vector<std::byte> bytes_;
  std::optional<image::FlatImage> flat_;  // refers to bytes_
};

}  // namespace smolvm::emulation
