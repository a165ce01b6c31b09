// The entries of a fatbin container.
//
//   container: +0 u32 magic | +4 u16 version 1 | +6 u16 header bytes | +8 u64 bytes after the
//   header entry:     +0 u16 kind | +2 u16 version 0x0101 | +4 u32 header bytes | +8 u64 payload
//   bytes (padded to 8)
//              +16 u32 compressed bytes (0 = stored raw) | +24 u16 minor | +26 u16 major | +28 u32
//              arch +40 u64 flags | +56 u64 uncompressed bytes
//   The next entry follows the payload.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace smolvm::image {

inline constexpr size_t kContainerHeaderBytes = 16;
inline constexpr size_t kEntryHeaderBytes = 64;  // the least: newer toolkits append to it

// FatbinEntry::kind. Others are skipped.
inline constexpr uint16_t kEntryPtx = 1;
inline constexpr uint16_t kEntryElf = 2;
inline constexpr uint16_t kEntryLtoIr = 8;

// FatbinEntry::flags.
inline constexpr uint64_t kEntry64Bit = 0x1;
inline constexpr uint64_t kEntryDebug = 0x2;
inline constexpr uint64_t kEntryLz4 = 0x2000;
inline constexpr uint64_t kEntryZstd = 0x8000;
inline constexpr uint64_t kEntryArchSpecific = 0x10'0000;  // sm_90a
inline constexpr uint64_t kEntryFamily = 0x20'0000;        // sm_100f

struct FatbinEntry {
  uint16_t kind = 0;
  uint16_t minor = 0;
  uint16_t major = 0;
  uint32_t arch = 0;  // 80, 120 …: 10 × major + minor of the compute capability
  uint64_t flags = 0;
  // Nonzero: `payload` is compressed, as the flags say, to this many bytes.
  uint32_t compressed_bytes = 0;
  uint64_t uncompressed_bytes = 0;
  std::span<const std::byte> payload;  // with its padding
};

// Walks a container's entries. Each is whole within `container`, or the walk ends with damaged().
//
//   FatbinReader reader(container);
//   FatbinEntry entry;
//   while (reader.Next(&entry)) …
//   if (reader.damaged()) …
class FatbinReader {
 public:
  // `container` begins with the container's header; bytes behind the container's own length are not
  // looked at.
  explicit FatbinReader(std::span<const std::byte> container);

  // False at the end, or when the next entry does not lie within the container.
  bool Next(FatbinEntry* entry);
  bool damaged() const { return damaged_; }

 private:
  std::span<const std::byte> rest_;
  bool damaged_ = false;
};

// The container's length with its header, or 0 if the first `bytes.size()` bytes do not hold it
// whole.
size_t ContainerBytes(std::span<const std::byte> bytes);

// Whether the container and all its entries lie within `bytes`.
bool IsWholeContainer(std::span<const std::byte> bytes);

}  // namespace smolvm::image
