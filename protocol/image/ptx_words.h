// The words of a PTX text, for who looks for a few declarations in it and does not parse it.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

namespace smolvm::image {

// Words, numbers and single characters, without comments and blanks.
class PtxWords {
 public:
  explicit PtxWords(std::string_view text) : text_(text) {}

  // Empty at the end.
  std::string_view Next() {
    SkipBlanks();
    const size_t begin = at_;
    if (at_ == text_.size()) return {};
    if (IsWordCharacter(text_[at_])) {
      while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
    } else if (text_[at_++] == '"') {
      at_ = std::min(text_.find('"', at_), text_.size() - 1) + 1;
    }
    return text_.substr(begin, at_ - begin);
  }

 private:
  // Directives and suffixes are words with dots: `.param`, `.b8`.
  static bool IsWordCharacter(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '%' ||
           c == '.';
  }
  bool At(std::string_view what) const { return text_.substr(at_, what.size()) == what; }
  void SkipTo(std::string_view what, size_t from) {
    const size_t found = text_.find(what, from);
    at_ = found == std::string_view::npos ? text_.size() : found + what.size();
  }
  void SkipBlanks() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
      if (At("//")) {
        SkipTo("\n", at_);
      } else if (At("/*")) {
        SkipTo("*/", at_ + 2);
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Bytes of a fundamental type (PTX ISA, fundamental types); 0 for others, opaque ones among them.
inline uint32_t TypeBytes(std::string_view type) {
  static constexpr struct {
    std::string_view name;
    uint32_t bytes;
  } kTypes[] = {{".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2},
                {".s16", 2}, {".f16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4},
                {".f32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}};
  for (const auto& known : kTypes) {
    if (type == known.name) return known.bytes;
  }
  return 0;
}

}  // namespace smolvm::image
