#include "protocol/image/unpack.h"

#include <lz4.h>
#include <zstd.h>

#include <algorithm>

namespace smolvm::image {
namespace {

bool UnpackZstd(std::span<const std::byte> packed, std::string* text) {
  const size_t size = ZSTD_decompress(text->data(), text->size(), packed.data(), packed.size());
  return ZSTD_isError(size) == 0 && size == text->size();
}

bool UnpackLz4(std::span<const std::byte> packed, std::string* text) {
  const int size =
      LZ4_decompress_safe(reinterpret_cast<const char*>(packed.data()), text->data(),
                          static_cast<int>(packed.size()), static_cast<int>(text->size()));
  return size >= 0 && static_cast<size_t>(size) == text->size();
}

}  // namespace

bool Unpack(const FatbinEntry& entry, std::string* text, std::string* error) {
  constexpr uint64_t kPacked = kEntryZstd | kEntryLz4;
  if (entry.compressed_bytes == 0 && (entry.flags & kPacked) == 0) {
    if (entry.payload.size() > kMaxUnpackedBytes) {
      *error = "an entry of the fatbin is too large";
      return false;
    }
    text->assign(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size());
  } else {
    const size_t packed_bytes = entry.compressed_bytes;
    const uint64_t most = std::min(kMaxUnpackedBytes, packed_bytes * kMaxUnpackedPerByte);
    if (entry.uncompressed_bytes == 0 || entry.uncompressed_bytes > most) {
      *error = "a compressed entry of the fatbin claims an implausible size";
      return false;
    }
    text->resize(entry.uncompressed_bytes);
    const std::span<const std::byte> packed = entry.payload.first(packed_bytes);
    const bool unpacked = (entry.flags & kEntryZstd) != 0  ? UnpackZstd(packed, text)
                          : (entry.flags & kEntryLz4) != 0 ? UnpackLz4(packed, text)
                                                           : false;
    if (!unpacked) {
      *error = "a compressed entry of the fatbin is damaged";
      return false;
    }
  }
  return true;
}

bool UnpackPtx(const FatbinEntry& entry, std::string* text, std::string* error) {
  if (!Unpack(entry, text, error)) return false;
  text->resize(std::min(text->find('\0'), text->size()));
  return true;
}

}  // namespace smolvm::image
