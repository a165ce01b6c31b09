// The parameter lists of a PTX text's kernels. Not a parser of PTX: it finds `.entry NAME ( … )`
// among the text's words, and what it does not know in such a list makes that kernel unknown.
#include <algorithm>
#include <cctype>

#include "protocol/image/kernel_params.h"

namespace smolvm::image {
namespace {

// Words, numbers and single characters, without comments and strings.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

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
uint32_t TypeBytes(std::string_view type) {
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

// A decimal number up to the largest block; 0 for anything else.
uint32_t Number(std::string_view word) {
  uint32_t value = 0;
  for (const char c : word) {
    if (c < '0' || c > '9') return 0;
    value = value * 10 + static_cast<uint32_t>(c - '0');
    if (value > kMaxKernelParamBytes) return 0;
  }
  return value;
}

// `.param .align 4 .b8 name[20]`, `.param .u64 .ptr .global .align 16 name`: from behind `.param`
// to the comma or parenthesis, which is left in `*word`. False: not understood.
bool ReadParam(Words* words, std::string_view* word, uint32_t* end, KernelParams* params) {
  uint32_t align = 0, bytes = 0;
  bool pointer = false;  // what .ptr says is about what it points to
  *word = words->Next();
  for (; word->starts_with('.'); *word = words->Next()) {
    if (*word == ".ptr") {
      pointer = true;
    } else if (*word == ".align") {
      const uint32_t value = Number(words->Next());
      if (value == 0 || (value & (value - 1)) != 0) return false;
      if (!pointer) align = value;
    } else if (!pointer) {
      if (bytes != 0 || (bytes = TypeBytes(*word)) == 0) return false;
    }
  }
  if (bytes == 0 || word->empty()) return false;
  if (align == 0) align = bytes;
  *word = words->Next();  // behind the name
  if (*word == "[") {
    const uint32_t count = Number(words->Next());
    if (count == 0 || words->Next() != "]") return false;
    bytes *= count;
    *word = words->Next();
  }
  const uint32_t offset = (*end + align - 1) / align * align;
  if (bytes > kMaxKernelParamBytes || offset > kMaxKernelParamBytes - bytes) return false;
  params->push_back({offset, bytes});
  *end = offset + bytes;
  return true;
}

// From behind the kernel's name.
std::optional<KernelParams> ReadList(Words* words) {
  KernelParams params;
  uint32_t end = 0;
  std::string_view word = words->Next();
  if (word != "(") return params;  // a kernel without a list has no parameters
  word = words->Next();
  while (word != ")") {
    if (word != ".param" || !ReadParam(words, &word, &end, &params)) return std::nullopt;
    if (word == ",") {
      word = words->Next();
    } else if (word != ")") {
      return std::nullopt;
    }
  }
  return params;
}

}  // namespace

KernelParamsByName ReadPtxKernelParams(std::string_view ptx) {
  KernelParamsByName all;
  Words words(ptx);
  size_t in_all = 0;
  for (std::string_view word; !(word = words.Next()).empty();) {
    if (word != ".entry") continue;
    if (all.size() >= kMaxKernels || in_all >= kMaxParamsInAll) break;
    const std::string name(words.Next());
    if (name.empty()) break;
    const std::optional<KernelParams> params = ReadList(&words);
    in_all += params ? params->size() : 0;
    const auto [known, added] = all.try_emplace(name, params);
    if (!added && known->second != params) known->second.reset();
  }
  return all;
}

}  // namespace smolvm::image
