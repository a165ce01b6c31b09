#include "host-daemon/emulation/api/image_file.h"

#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

namespace smolvm::emulation {
namespace {

constexpr size_t kChunk = size_t{64} << 10;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

}  // namespace

CUresult ReadWholeFile(const char* path, std::vector<std::byte>* bytes) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path, "rbe"));
  if (file == nullptr) return CUDA_ERROR_FILE_NOT_FOUND;
  size_t length = 0;
  while (length <= image::kMaxImageBytes) {
    bytes->resize(length + kChunk);
    const size_t got = std::fread(bytes->data() + length, 1, kChunk, file.get());
    length += got;
    if (got == 0) break;
  }
  // A folder opens, but does not read.
  if (std::ferror(file.get())) return CUDA_ERROR_FILE_NOT_FOUND;
  bytes->resize(length);
  return length == 0 ? CUDA_ERROR_INVALID_IMAGE : CUDA_SUCCESS;
}

CUresult ImageFile::Read(const char* path) {
  if (const CUresult result = ReadWholeFile(path, &bytes_); result != CUDA_SUCCESS) return result;
  // A PTX file ends without the NUL that PTX in memory has; other files may have bytes behind the
  // image.
  bytes_.push_back(std::byte{0});
  const image::Image measured = image::MeasureImage(bytes_.data(), bytes_.size());
  if (measured.kind == image::Kind::kInvalid) return CUDA_ERROR_INVALID_IMAGE;
  bytes_.resize(measured.bytes);
  auto flat = image::FlatImage::Read(bytes_);
  if (!flat) return CUDA_ERROR_INVALID_IMAGE;
  flat_.emplace(std::move(*flat));
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
