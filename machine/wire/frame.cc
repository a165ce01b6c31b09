#include "machine/wire/frame.h"

namespace smolvm::machine {

void PutU32(std::string* out, uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(value >> shift));
}

void PutString(std::string* out, std::string_view value) {
  PutU32(out, value.size());
  out->append(value);
}

std::string EncodeFrame(FrameType type, std::string_view payload) {
  std::string frame;
  frame.reserve(kFrameHeader + payload.size());
  PutU32(&frame, payload.size());
  frame.push_back(static_cast<char>(type));
  frame.append(payload);
  return frame;
}

std::string_view FieldReader::Take(size_t bytes) {
  if (!ok_ || bytes > rest_.size()) {
    ok_ = false;
    return {};
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

uint32_t FieldReader::U32() {
  const std::string_view raw = Take(4);
  uint32_t value = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    value |= uint32_t{static_cast<unsigned char>(raw[i])} << 8 * i;
  }
  return value;
}

std::string FieldReader::String() {
  const uint32_t size = U32();
  return std::string(Take(size));
}

size_t FrameParser::Missing() const {
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (rest.size() < kFrameHeader) return kFrameHeader - rest.size();
  const size_t payload = FieldReader(rest.substr(0, 4)).U32();
  if (payload > max_payload_) return 0;  // Next says so
  const size_t whole = kFrameHeader + payload;
  return whole > rest.size() ? whole - rest.size() : 0;
}

std::optional<Frame> FrameParser::Next() {
  const std::string_view rest = std::string_view(buffer_).substr(used_);
  if (broken_ || rest.size() < kFrameHeader) return std::nullopt;
  const uint32_t size = FieldReader(rest.substr(0, 4)).U32();
  if (size > max_payload_) {
    broken_ = true;
    return std::nullopt;
  }
  if (rest.size() - kFrameHeader < size) return std::nullopt;
  Frame frame{static_cast<FrameType>(rest[4]), std::string(rest.substr(kFrameHeader, size))};
  used_ += kFrameHeader + size;
  if (used_ == buffer_.size() || used_ > kStreamChunk) {
    buffer_.erase(0, used_);
    used_ = 0;
  }
  return frame;
}

}  // namespace smolvm::machine
