// The parameter lists of a PTX text's kernels. Not a parser of PTX: it finds `.entry NAME ( … )`
// among the text's words, and what it does not know in such a list makes that kernel unknown.
#include "protocol/image/kernel_params.h"
#include "protocol/image/ptx_words.h"

namespace smolvm::image {
namespace {

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
bool ReadParam(PtxWords* words, std::string_view* word, uint32_t* end, KernelParams* params) {
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
std::optional<KernelParams> ReadList(PtxWords* words) {
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
  PtxWords words(ptx);
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
