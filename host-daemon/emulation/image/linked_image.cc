#include "host-daemon/emulation/image/linked_image.h"

#include <elf.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "host-daemon/emulation/ptx/limits.h"
#include "protocol/image/elf_sections.h"

namespace smolvm::emulation {
namespace {

constexpr std::string_view kSection = ".smolvm.ptx";
constexpr char kSectionNames[] = "\0.smolvm.ptx\0.shstrtab";  // names at 1 and 13
constexpr std::string_view kMagic = "SMOLPTX1";
// Sections: none, the PTX, the names.
constexpr int kSectionCount = 3;
constexpr uint16_t kMachineCuda = 190;  // EM_CUDA

// What one load may be made of; the linker's own limit is lower (linker.cc).
constexpr uint64_t kMaxSources = 1 << 16;

uint64_t Hash(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, 64 bits
  for (const std::byte byte : bytes)
    hash = (hash ^ static_cast<uint8_t>(byte)) * uint64_t{0x100000001b3};
  return hash;
}

class Writer {
 public:
  void Text(std::string_view text) {
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), bytes, bytes + text.size());
  }
  template <typename T>
  void Value(const T& value) {
    Text({reinterpret_cast<const char*>(&value), sizeof value});
  }
  void Align() { bytes_.resize((bytes_.size() + 7) / 8 * 8); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

std::vector<std::byte> Payload(std::span<const NamedPtx> sources) {
  Writer out;
  out.Text(kMagic);
  out.Value(uint64_t{sources.size()});
  for (const NamedPtx& source : sources) {
    out.Value(uint64_t{source.name.size()});
    out.Value(uint64_t{source.text.size()});
  }
  for (const NamedPtx& source : sources) {
    out.Text(source.name);
    out.Text(source.text);
  }
  out.Value(Hash(out.bytes()));
  return std::move(out.bytes());
}

// Takes what is asked for from the front, or fails for good.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  bool Text(uint64_t size, std::string_view* text) {
    if (size > bytes_.size()) return false;
    *text = {reinterpret_cast<const char*>(bytes_.data()), size};
    bytes_ = bytes_.subspan(size);
    return true;
  }
  bool Value(uint64_t* value) {
    std::string_view text;
    if (!Text(sizeof *value, &text)) return false;
    memcpy(value, text.data(), sizeof *value);
    return true;
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

// The section's bytes, of the first that has the name.
std::optional<std::span<const std::byte>> Find(std::span<const std::byte> image) {
  std::optional<std::span<const std::byte>> found;
  image::ForEachSection(image, [&](std::string_view name, std::span<const std::byte> bytes) {
    if (name == kSection && !found) found = bytes;
  });
  return found;
}

}  // namespace

std::vector<std::byte> WriteLinkedImage(std::span<const NamedPtx> sources) {
  const std::vector<std::byte> payload = Payload(sources);
  Elf64_Ehdr header{};
  memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_EXEC;
  header.e_machine = kMachineCuda;
  header.e_version = EV_CURRENT;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = kSectionCount;
  header.e_shstrndx = 2;

  Elf64_Shdr sections[kSectionCount]{};
  Writer out;
  out.Value(header);  // again below, when the offsets are known
  sections[1].sh_name = 1;
  sections[1].sh_type = SHT_PROGBITS;
  sections[1].sh_offset = out.bytes().size();
  sections[1].sh_size = payload.size();
  sections[1].sh_addralign = 8;
  out.Text({reinterpret_cast<const char*>(payload.data()), payload.size()});
  sections[2].sh_name = 1 + kSection.size() + 1;
  sections[2].sh_type = SHT_STRTAB;
  sections[2].sh_offset = out.bytes().size();
  sections[2].sh_size = sizeof kSectionNames;
  sections[2].sh_addralign = 1;
  out.Text({kSectionNames, sizeof kSectionNames});
  out.Align();
  header.e_shoff = out.bytes().size();
  for (const Elf64_Shdr& section : sections) out.Value(section);
  memcpy(out.bytes().data(), &header, sizeof header);
  return std::move(out.bytes());
}

bool IsLinkedImage(std::span<const std::byte> image) { return Find(image).has_value(); }

bool ReadLinkedImage(std::span<const std::byte> image, std::vector<NamedPtx>* sources) {
  sources->clear();
  const auto payload = Find(image);
  if (!payload || payload->size() < sizeof(uint64_t)) return false;
  const auto content = payload->first(payload->size() - sizeof(uint64_t));
  uint64_t hash = 0, count = 0;
  memcpy(&hash, content.data() + content.size(), sizeof hash);
  if (hash != Hash(content)) return false;
  Reader table(content);
  std::string_view magic;
  if (!table.Text(kMagic.size(), &magic) || magic != kMagic || !table.Value(&count)) return false;
  if (count > kMaxSources || count * 16 > table.left()) return false;
  Reader texts = table;
  std::string_view skipped;
  if (!texts.Text(count * 16, &skipped)) return false;
  uint64_t total = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t name_bytes = 0, text_bytes = 0;
    std::string_view name, text;
    if (!table.Value(&name_bytes) || !table.Value(&text_bytes)) return false;
    if (!texts.Text(name_bytes, &name) || !texts.Text(text_bytes, &text)) return false;
    total += text_bytes;
    if (total > ptx::kMaxSourceBytes) return false;
    sources->push_back({std::string(name), std::string(text)});
  }
  return texts.left() == 0;
}

}  // namespace smolvm::emulation
