#include "protocol/image/fatbin.h"

#include <cstring>

#include "protocol/image/image.h"

namespace smolvm::image {
namespace {

// The caller has checked that the value lies within the bytes.
template <typename T>
T Load(std::span<const std::byte> bytes, size_t offset) {
  T value;
  memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

}  // namespace

size_t ContainerBytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kContainerHeaderBytes || Load<uint32_t>(bytes, 0) != kContainerMagic) return 0;
  const size_t header = Load<uint16_t>(bytes, 6);
  const uint64_t rest = Load<uint64_t>(bytes, 8);
  if (header < kContainerHeaderBytes || header > bytes.size()) return 0;
  if (rest > kMaxImageBytes || rest > bytes.size() - header) return 0;
  return header + rest;
}

FatbinReader::FatbinReader(std::span<const std::byte> container) {
  const size_t size = ContainerBytes(container);
  if (size == 0) {
    damaged_ = true;
    return;
  }
  const size_t header = Load<uint16_t>(container, 6);
  rest_ = container.subspan(header, size - header);
}

bool FatbinReader::Next(FatbinEntry* entry) {
  if (damaged_ || rest_.empty()) return false;
  damaged_ = true;  // until the entry has proved whole
  if (rest_.size() < kEntryHeaderBytes) return false;
  const size_t header = Load<uint32_t>(rest_, 4);
  const uint64_t payload = Load<uint64_t>(rest_, 8);
  if (header < kEntryHeaderBytes || header > rest_.size()) return false;
  if (payload > rest_.size() - header) return false;
  entry->kind = Load<uint16_t>(rest_, 0);
  entry->compressed_bytes = Load<uint32_t>(rest_, 16);
  entry->minor = Load<uint16_t>(rest_, 24);
  entry->major = Load<uint16_t>(rest_, 26);
  entry->arch = Load<uint32_t>(rest_, 28);
  entry->flags = Load<uint64_t>(rest_, 40);
  entry->uncompressed_bytes = Load<uint64_t>(rest_, 56);
  entry->payload = rest_.subspan(header, payload);
  if (entry->compressed_bytes > payload) return false;
  rest_ = rest_.subspan(header + payload);
  damaged_ = false;
  return true;
}

bool IsWholeContainer(std::span<const std::byte> bytes) {
  FatbinReader reader(bytes);
  FatbinEntry entry;
  while (reader.Next(&entry)) {
  }
  return !reader.damaged();
}

}  // namespace smolvm::image
