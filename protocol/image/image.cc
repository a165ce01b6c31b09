#include "protocol/image/image.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "protocol/image/fatbin.h"

namespace smolvm::image {
namespace {

constexpr size_t kAlignment = 8;
// A v2 wrapper names one container per object file that was linked.
constexpr size_t kMaxPrelinked = 1 << 16;
// Sections of a cubin: several per kernel.
constexpr uint64_t kMaxSections = 1 << 22;

// ELF-64, little-endian.
constexpr size_t kElfHeaderBytes = 64;
constexpr size_t kSectionHeaderBytes = 64;
constexpr size_t kProgramHeaderBytes = 56;
constexpr uint32_t kSectionNull = 0;    // SHT_NULL
constexpr uint32_t kSectionNoBits = 8;  // SHT_NOBITS: occupies no bytes of the file
constexpr uint32_t kSegmentNull = 0;    // PT_NULL

template <typename T>
T Load(const std::byte* p, size_t offset) {
  T value;
  memcpy(&value, p + offset, sizeof(value));
  return value;
}

// Compared byte by byte: the string "" ends before the second.
bool StartsWith(const std::byte* p, size_t limit, uint32_t magic) {
  for (size_t i = 0; i < sizeof(magic); ++i) {
    if (i >= limit || p[i] != static_cast<std::byte>(magic >> (8 * i))) return false;
  }
  return true;
}

// The furthest byte that an ELF file's headers claim, growing as they are read.
class Extent {
 public:
  explicit Extent(size_t limit) : limit_(std::min(limit, kMaxImageBytes)) {}

  // False when [offset, offset + count × size) passes the limit.
  bool Add(uint64_t offset, uint64_t count, uint64_t size) {
    uint64_t bytes;
    uint64_t end;
    if (__builtin_mul_overflow(count, size, &bytes)) return false;
    if (__builtin_add_overflow(offset, bytes, &end) || end > limit_) return false;
    end_ = std::max<size_t>(end_, end);
    return true;
  }
  size_t end() const { return end_; }

 private:
  size_t limit_;
  size_t end_ = 0;
};

bool AddSections(const std::byte* p, Extent* extent) {
  const uint64_t table = Load<uint64_t>(p, 0x28);  // e_shoff
  if (table == 0) return true;
  uint64_t count = Load<uint16_t>(p, 0x3C);                          // e_shnum
  if (Load<uint16_t>(p, 0x3A) != kSectionHeaderBytes) return false;  // e_shentsize
  if (count == 0) {  // more than 65,279 sections: section 0's sh_size has the number
    if (!extent->Add(table, 1, kSectionHeaderBytes)) return false;
    count = Load<uint64_t>(p, table + 0x20);
  }
  if (count > kMaxSections || !extent->Add(table, count, kSectionHeaderBytes)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* header = p + table + i * kSectionHeaderBytes;
    const uint32_t type = Load<uint32_t>(header, 0x04);
    if (type == kSectionNull || type == kSectionNoBits) continue;
    if (!extent->Add(Load<uint64_t>(header, 0x18), 1, Load<uint64_t>(header, 0x20))) return false;
  }
  return true;
}

bool AddSegments(const std::byte* p, Extent* extent) {
  const uint64_t table = Load<uint64_t>(p, 0x20);  // e_phoff
  const uint64_t count = Load<uint16_t>(p, 0x38);  // e_phnum
  if (table == 0 || count == 0) return true;
  if (Load<uint16_t>(p, 0x36) != kProgramHeaderBytes) return false;  // e_phentsize
  if (!extent->Add(table, count, kProgramHeaderBytes)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    const std::byte* header = p + table + i * kProgramHeaderBytes;
    if (Load<uint32_t>(header, 0) == kSegmentNull) continue;
    if (!extent->Add(Load<uint64_t>(header, 0x08), 1, Load<uint64_t>(header, 0x20))) return false;
  }
  return true;
}

Image MeasureElf(const std::byte* p, size_t limit) {
  constexpr auto kClass64 = std::byte{2};
  constexpr auto kLittleEndian = std::byte{1};
  Extent extent(limit);
  if (!extent.Add(0, 1, kElfHeaderBytes)) return {};
  if (p[4] != kClass64 || p[5] != kLittleEndian) return {};
  if (!AddSections(p, &extent) || !AddSegments(p, &extent)) return {};
  return {Kind::kElf, extent.end()};
}

Image MeasureContainer(const std::byte* p, size_t limit) {
  // With an unknown limit the header's own length is believed, up to kMaxImageBytes.
  const size_t bytes = ContainerBytes({p, std::min(limit, 2 * kMaxImageBytes)});
  if (bytes == 0) return {};
  return {Kind::kContainer, bytes};
}

Image MeasureWrapper(const std::byte* p, size_t limit) {
  if (limit < kWrapperBytes) return {};
  switch (Load<uint32_t>(p, 4)) {
    case 1:
      return {Kind::kWrapperV1, kWrapperBytes};
    case 2:
      return {Kind::kWrapperV2, kWrapperBytes};
    default:
      return {};
  }
}

// PTX begins with a directive or a comment, after blanks.
Image MeasureText(const std::byte* p, size_t limit) {
  const char* text = reinterpret_cast<const char*>(p);
  size_t i = 0;
  while (i < limit && text[i] != '\0' && strchr(" \t\r\n\f\v", text[i])) ++i;
  if (i == limit || (text[i] != '.' && text[i] != '/')) return {};
  const size_t length = i + strnlen(text + i, std::min(limit, kMaxImageBytes) - i);
  if (length >= limit || length >= kMaxImageBytes) return {};
  return {Kind::kPtx, length + 1};
}

size_t Padded(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool AppendContainer(const void* p, WrapperParts* parts) {
  if (p == nullptr) return false;
  const Image image = MeasureImage(p, kUnknownLimit);
  if (image.kind != Kind::kContainer) return false;
  parts->containers.emplace_back(static_cast<const std::byte*>(p), image.bytes);
  return true;
}

}  // namespace

Image MeasureImage(const void* p, size_t limit) {
  if (p == nullptr || limit == 0) return {};
  const auto* bytes = static_cast<const std::byte*>(p);
  constexpr uint32_t kElfMagic = 0x464C457F;
  if (StartsWith(bytes, limit, kWrapperMagic)) return MeasureWrapper(bytes, limit);
  if (StartsWith(bytes, limit, kContainerMagic)) return MeasureContainer(bytes, limit);
  if (StartsWith(bytes, limit, kElfMagic)) return MeasureElf(bytes, limit);
  return MeasureText(bytes, limit);
}

std::optional<WrapperParts> ReadWrapper(const void* p) {
  WrapperParts parts;
  parts.kind = MeasureImage(p, kUnknownLimit).kind;
  if (parts.kind != Kind::kWrapperV1 && parts.kind != Kind::kWrapperV2) return std::nullopt;
  const auto* wrapper = static_cast<const std::byte*>(p);
  if (!AppendContainer(Load<const void*>(wrapper, 8), &parts)) return std::nullopt;
  if (parts.kind == Kind::kWrapperV1) return parts;
  const auto* prelinked = Load<const std::byte*>(wrapper, 16);
  for (size_t i = 0; prelinked != nullptr; ++i) {
    const auto* container = Load<const void*>(prelinked, i * sizeof(void*));
    if (container == nullptr) break;
    if (i == kMaxPrelinked || !AppendContainer(container, &parts)) return std::nullopt;
  }
  return parts;
}

std::vector<std::byte> Flatten(const void* p) {
  const Image image = MeasureImage(p, kUnknownLimit);
  if (image.kind == Kind::kInvalid) return {};
  const auto* bytes = static_cast<const std::byte*>(p);
  if (image.kind != Kind::kWrapperV1 && image.kind != Kind::kWrapperV2) {
    return {bytes, bytes + image.bytes};
  }
  std::vector<std::byte> flat;
  const std::optional<WrapperParts> parts = ReadWrapper(p);
  if (!parts) return {};
  for (const std::span<const std::byte> container : parts->containers) {
    flat.insert(flat.end(), container.begin(), container.end());
    flat.resize(Padded(flat.size()));
  }
  return flat;
}

std::optional<FlatImage> FlatImage::Read(std::span<const std::byte> flat) {
  const Image first = MeasureImage(flat.data(), flat.size());
  switch (first.kind) {
    case Kind::kPtx:
    case Kind::kElf:
      if (first.bytes != flat.size()) return std::nullopt;
      return FlatImage(first.kind, flat.data());
    case Kind::kContainer:
      break;
    default:  // a wrapper's pointers mean nothing here
      return std::nullopt;
  }
  FlatImage image(Kind::kContainer, flat.data());
  while (!flat.empty()) {
    const size_t bytes = ContainerBytes(flat);
    if (bytes == 0 || !IsWholeContainer(flat)) return std::nullopt;
    if (image.prelinked_.size() > kMaxPrelinked) return std::nullopt;
    image.prelinked_.push_back(flat.data());
    flat = flat.subspan(std::min(Padded(bytes), flat.size()));
  }
  if (image.prelinked_.size() > 1) {
    image.kind_ = Kind::kWrapperV2;
    image.prelinked_.erase(image.prelinked_.begin());
    image.prelinked_.push_back(nullptr);
    image.wrapper_.data = image.data_;
    image.wrapper_.prelinked = image.prelinked_.data();
  }
  return image;
}

FlatImage::FlatImage(FlatImage&& other) noexcept
    : kind_(other.kind_),
      data_(other.data_),
      wrapper_(other.wrapper_),
      prelinked_(std::move(other.prelinked_)) {}

const void* FlatImage::image() const {
  return kind_ == Kind::kWrapperV2 ? static_cast<const void*>(&wrapper_) : data_;
}

}  // namespace smolvm::image
