// The functions that a 64-bit ELF shared object exports, read from its .dynsym; the object is not
// loaded.
#pragma once

#include <elf.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace smolvm::parity {

inline std::set<std::string> ElfExports(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  const auto read = [&file](size_t offset, auto* out) {
    if (offset > file.size() || file.size() - offset < sizeof(*out))
      throw std::runtime_error("truncated ELF file");
    std::memcpy(out, file.data() + offset, sizeof(*out));
  };
  Elf64_Ehdr header;
  read(0, &header);
  std::set<std::string> names;
  for (size_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section, strings;
    read(header.e_shoff + i * sizeof(section), &section);
    if (section.sh_type != SHT_DYNSYM) continue;
    read(header.e_shoff + section.sh_link * sizeof(strings), &strings);
    for (size_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      read(section.sh_offset + at, &symbol);
      if (symbol.st_shndx == SHN_UNDEF) continue;
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      names.insert(file.data() + strings.sh_offset + symbol.st_name);
    }
  }
  return names;
}

}  // namespace smolvm::parity
