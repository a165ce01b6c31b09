#include "protocol/image/variables.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>

#include "protocol/image/elf_sections.h"
#include "protocol/image/fatbin.h"
#include "protocol/image/image.h"
#include "protocol/image/ptx_words.h"
#include "protocol/image/unpack.h"

namespace smolvm::image {
namespace {

using Wide = unsigned __int128;
using Bytes = std::optional<uint64_t>;

constexpr uint64_t kMaxAlign = 1 << 16;
constexpr uint64_t kOpaqueBytes = 64;  // textures, samplers and surfaces: no larger anywhere

uint64_t Capped(Wide bytes) {
  return static_cast<uint64_t>(std::min<Wide>(bytes, kMaxVariableBytes));
}

Bytes Sum(const Bytes& a, const Bytes& b) {
  return a && b ? Bytes(Capped(Wide{*a} + *b)) : std::nullopt;
}

// A literal of PTX: decimal, hexadecimal, octal or binary, with or without U.
std::optional<uint64_t> Literal(std::string_view word) {
  if (word.ends_with('U') || word.ends_with('u')) word.remove_suffix(1);
  int base = 10;
  if (word.starts_with("0x") || word.starts_with("0X")) base = 16;
  if (word.starts_with("0b") || word.starts_with("0B")) base = 2;
  if (base != 10) word.remove_prefix(2);
  if (base == 10 && word.size() > 1 && word[0] == '0') base = 8;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
  return error == std::errc() && end == word.data() + word.size() && !word.empty()
             ? std::optional(value)
             : std::nullopt;
}

// One declaration, from behind `.global` or `.const` to its `;`.
class Declaration {
 public:
  explicit Declaration(PtxWords* words) : words_(*words) { Next(); }

  Bytes Read() {
    if (!ReadType()) return std::nullopt;
    Bytes all = 0;
    for (;;) {
      all = Sum(all, ReadVariable());
      if (word_ == ";" || !all) return all;
      if (word_ != ",") return std::nullopt;
      Next();
    }
  }

 private:
  void Next() { word_ = words_.Next(); }

  bool ReadType() {
    for (; word_.starts_with('.'); Next()) {
      if (word_ == ".align") {
        Next();
        const auto align = Literal(word_);
        if (!align || *align == 0 || *align > kMaxAlign) return false;
        align_ = *align;
      } else if (word_ == ".attribute") {
        while (word_ != ")" && !word_.empty()) Next();
      } else if (word_ == ".v2" || word_ == ".v4" || word_ == ".v8") {
        lanes_ = static_cast<uint64_t>(word_[2] - '0');
      } else if (word_ == ".texref" || word_ == ".samplerref" || word_ == ".surfref") {
        element_ = kOpaqueBytes;
      } else if (word_ == ".b128") {
        element_ = 16;
      } else if (element_ != 0 || (element_ = TypeBytes(word_)) == 0) {
        return false;
      }
    }
    return element_ != 0;
  }

  // From its name to the `,` or `;` behind it.
  Bytes ReadVariable() {
    Next();
    Wide count = 1;
    bool open = false;  // as many as the initialiser has
    while (word_ == "[") {
      Next();
      if (word_ == "]") {
        open = true;
      } else {
        const auto extent = Literal(word_);
        Next();
        if (!extent || word_ != "]") return std::nullopt;
        count = Capped(count * *extent);
      }
      Next();
    }
    const uint64_t given = word_ == "=" ? SkipInitialiser() : 0;
    if (open) count = Capped(count * given);
    if (word_.empty()) return std::nullopt;
    return Capped(count * element_ * lanes_ + std::max(align_, element_ * lanes_));
  }

  // Returns at least as many elements as it has.
  uint64_t SkipInitialiser() {
    uint64_t elements = 1, depth = 0;
    for (Next(); !word_.empty(); Next()) {
      if (depth == 0 && (word_ == "," || word_ == ";")) break;
      if (word_ == "{" || word_ == "(") ++depth;
      if ((word_ == "}" || word_ == ")") && depth > 0) --depth;
      if (word_ == ",") ++elements;
    }
    return elements;
  }

  PtxWords& words_;
  std::string_view word_;
  uint64_t element_ = 0, lanes_ = 1, align_ = 1;
};

bool IsVariableSection(std::string_view name) {
  return name.starts_with(".nv.global") || name.starts_with(".nv.constant");
}

// What cuLinkComplete makes on the emulation device (emulation/image/linked_image.h): names and
// texts of PTX sources, behind their lengths. The names are the program's, and no PTX.
Bytes OfLinkedSources(std::span<const std::byte> section) {
  constexpr size_t kHeadBytes = 16, kRowBytes = 16;
  const auto load = [&](size_t at) {
    uint64_t value;
    memcpy(&value, section.data() + at, sizeof value);
    return value;
  };
  if (section.size() < kHeadBytes) return std::nullopt;
  const uint64_t count = load(8);
  if (count > (section.size() - kHeadBytes) / kRowBytes) return std::nullopt;
  std::span<const std::byte> rest = section.subspan(kHeadBytes + count * kRowBytes);
  Bytes all = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t name = load(kHeadBytes + i * kRowBytes);
    const uint64_t text = load(kHeadBytes + i * kRowBytes + 8);
    if (name > rest.size() || text > rest.size() - name) return std::nullopt;
    const char* begin = reinterpret_cast<const char*>(rest.data()) + name;
    all = Sum(all, PtxVariableBytes({begin, text}));
    rest = rest.subspan(name + text);
  }
  return all;
}

// Also of an image that cuLinkComplete made on the emulation device: an ELF file with PTX in it.
Bytes OfCubin(std::span<const std::byte> elf) {
  Bytes all = 0;
  const bool whole = ForEachSectionSize(elf, [&](std::string_view name, uint64_t size) {
    if (IsVariableSection(name)) all = Sum(all, size);
  });
  bool linked = false;  // one such section: those of a hostile file may overlap
  ForEachSection(elf, [&](std::string_view name, std::span<const std::byte> bytes) {
    if (name != ".smolvm.ptx") return;
    all = std::exchange(linked, true) ? std::nullopt : Sum(all, OfLinkedSources(bytes));
  });
  return whole ? all : std::nullopt;
}

Bytes OfEntry(const FatbinEntry& entry) {
  if (entry.kind != kEntryElf && entry.kind != kEntryPtx)
    return entry.kind == kEntryLtoIr ? std::nullopt : Bytes(0);  // others are skipped by loaders
  std::string unpacked, error;
  std::span<const std::byte> bytes = entry.payload;
  if (entry.compressed_bytes != 0 || (entry.flags & (kEntryLz4 | kEntryZstd)) != 0) {
    if (!Unpack(entry, &unpacked, &error)) return std::nullopt;
    bytes = std::as_bytes(std::span(unpacked));
  }
  if (entry.kind == kEntryElf) return OfCubin(bytes);
  const char* text = reinterpret_cast<const char*>(bytes.data());
  return PtxVariableBytes({text, strnlen(text, bytes.size())});
}

Bytes OfContainer(std::span<const std::byte> container) {
  uint64_t largest = 0;
  FatbinReader reader(container);
  for (FatbinEntry entry; reader.Next(&entry);) {
    const Bytes bytes = OfEntry(entry);
    if (!bytes) return std::nullopt;
    largest = std::max(largest, *bytes);
  }
  return largest;
}

}  // namespace

Bytes PtxVariableBytes(std::string_view ptx) {
  PtxWords words(ptx);
  Bytes all = 0;
  std::string_view before;
  for (std::string_view word; all && !(word = words.Next()).empty(); before = word) {
    if ((word != ".global" && word != ".const") || before == ".ptr") continue;
    // What is declared .extern is another module's.
    const bool elsewhere = before == ".extern";
    const Bytes bytes = Declaration(&words).Read();
    if (!elsewhere) all = Sum(all, bytes);
    word = ";";
  }
  return all;
}

Bytes VariableBytes(std::span<const std::byte> flat) {
  const Kind kind = MeasureImage(flat.data(), flat.size()).kind;
  if (kind == Kind::kElf) return OfCubin(flat);
  if (kind == Kind::kPtx) {
    const char* text = reinterpret_cast<const char*>(flat.data());
    return PtxVariableBytes({text, strnlen(text, flat.size())});
  }
  // A wrapper's containers follow each other (Flatten), and are linked together.
  Bytes all = 0;
  for (size_t bytes; kind == Kind::kContainer && (bytes = ContainerBytes(flat)) != 0;) {
    all = Sum(all, OfContainer(flat.first(bytes)));
    flat = flat.subspan(std::min(flat.size(), (bytes + 7) / 8 * 8));
  }
  return all;
}

}  // namespace smolvm::image
