#include "host-daemon/emulation/image/archive.h"

#include <ar.h>

#include <charconv>
#include <cstring>

namespace smolvm::emulation {
namespace {

// A number in decimal, padded with blanks.
bool ParseNumber(std::string_view field, uint64_t* value) {
  const size_t end = field.find(' ');
  const std::string_view digits = field.substr(0, end);
  const auto [stop, error] = std::from_chars(digits.begin(), digits.end(), *value);
  return error == std::errc() && stop == digits.end();
}

// "name/", or "/17": at byte 17 of the table of long names, to the next '/'.
std::string_view NameOf(std::string_view field, std::string_view long_names) {
  uint64_t at = 0;
  if (field.starts_with('/') && ParseNumber(field.substr(1), &at) && at < long_names.size()) {
    field = long_names.substr(at);
    field = field.substr(0, field.find('\n'));
  }
  return field.substr(0, field.find_first_of("/ "));
}

}  // namespace

bool ForEachMember(
    std::span<const std::byte> archive,
    const std::function<void(std::string_view name, std::span<const std::byte> bytes)>& visit) {
  const std::string_view all(reinterpret_cast<const char*>(archive.data()), archive.size());
  if (!all.starts_with(ARMAG)) return false;
  std::string_view long_names;
  size_t at = SARMAG;
  while (at < all.size()) {
    ar_hdr header;
    if (all.size() - at < sizeof header) return false;
    memcpy(&header, all.data() + at, sizeof header);
    at += sizeof header;
    uint64_t size = 0;
    if (std::string_view(header.ar_fmag, 2) != ARFMAG ||
        !ParseNumber({header.ar_size, sizeof header.ar_size}, &size) || size > all.size() - at)
      return false;
    const std::string_view name(header.ar_name, sizeof header.ar_name);
    if (name.starts_with("// ")) {
      long_names = all.substr(at, size);
    } else if (!name.starts_with("/ ") && !name.starts_with("/SYM64/")) {
      visit(NameOf(name, long_names), archive.subspan(at, size));
    }
    at += size + size % 2;  // members begin at even offsets
  }
  return true;
}

}  // namespace smolvm::emulation
