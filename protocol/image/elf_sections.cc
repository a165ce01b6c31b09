#include "protocol/image/elf_sections.h"

#include <elf.h>

#include <cstring>
#include <optional>

#include "protocol/image/image.h"

namespace smolvm::image {
namespace {

// False when [offset, offset + bytes) is not in the file.
bool Within(std::span<const std::byte> file, uint64_t offset, uint64_t bytes) {
  return offset <= file.size() && bytes <= file.size() - offset;
}

class Sections {
 public:
  // Nullopt when the headers do not lie in the file.
  static std::optional<Sections> Read(std::span<const std::byte> file) {
    // The measure is of the same headers, section by section.
    if (MeasureImage(file.data(), file.size()).kind != Kind::kElf) return std::nullopt;
    Sections sections;
    sections.file_ = file;
    memcpy(&sections.header_, file.data(), sizeof sections.header_);
    const Elf64_Ehdr& header = sections.header_;
    if (header.e_shoff == 0) return sections;
    sections.count_ = header.e_shnum;
    if (!Within(file, header.e_shoff, sizeof(Elf64_Shdr))) return std::nullopt;
    // More sections than e_shnum can say: section 0 has the numbers.
    const Elf64_Shdr first = sections.At(0);
    if (sections.count_ == 0) sections.count_ = first.sh_size;
    if (sections.count_ > file.size() / sizeof(Elf64_Shdr) ||
        !Within(file, header.e_shoff, sections.count_ * sizeof(Elf64_Shdr)))
      return std::nullopt;
    const uint64_t names = header.e_shstrndx == SHN_XINDEX ? first.sh_link : header.e_shstrndx;
    if (names >= sections.count_) return std::nullopt;
    return sections.BytesOf(sections.At(names), &sections.names_) ? std::optional(sections)
                                                                  : std::nullopt;
  }

  uint64_t count() const { return count_; }

  Elf64_Shdr At(uint64_t index) const {
    Elf64_Shdr section;
    memcpy(&section, file_.data() + header_.e_shoff + index * sizeof section, sizeof section);
    return section;
  }

  bool BytesOf(const Elf64_Shdr& section, std::span<const std::byte>* bytes) const {
    if (!Within(file_, section.sh_offset, section.sh_size)) return false;
    *bytes = file_.subspan(section.sh_offset, section.sh_size);
    return true;
  }

  std::string_view NameOf(const Elf64_Shdr& section) const {
    if (section.sh_name >= names_.size()) return {};
    const char* name = reinterpret_cast<const char*>(names_.data()) + section.sh_name;
    return {name, strnlen(name, names_.size() - section.sh_name)};
  }

 private:
  std::span<const std::byte> file_;
  std::span<const std::byte> names_;
  Elf64_Ehdr header_{};
  uint64_t count_ = 0;
};

}  // namespace

bool ForEachSection(
    std::span<const std::byte> file,
    const std::function<void(std::string_view name, std::span<const std::byte> bytes)>& visit) {
  const std::optional<Sections> sections = Sections::Read(file);
  if (!sections) return false;
  for (uint64_t i = 0; i < sections->count(); ++i) {
    const Elf64_Shdr section = sections->At(i);
    if (section.sh_type == SHT_NULL || section.sh_type == SHT_NOBITS) continue;
    std::span<const std::byte> bytes;
    if (!sections->BytesOf(section, &bytes)) return false;
    visit(sections->NameOf(section), bytes);
  }
  return true;
}

bool ForEachSectionSize(std::span<const std::byte> file,
                        const std::function<void(std::string_view name, uint64_t size)>& visit) {
  const std::optional<Sections> sections = Sections::Read(file);
  if (!sections) return false;
  for (uint64_t i = 0; i < sections->count(); ++i) {
    const Elf64_Shdr section = sections->At(i);
    if (section.sh_type != SHT_NULL) visit(sections->NameOf(section), section.sh_size);
  }
  return true;
}

}  // namespace smolvm::image
