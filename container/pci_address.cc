#include "container/pci_address.h"

#include <charconv>
#include <cstdint>
#include <optional>
#include <tuple>

namespace smolvm::gpu {
namespace {

using Parts = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;

// Takes a hexadecimal number of `digits` digits or more up to `separator` off the front of `text`.
std::optional<std::uint32_t> TakeHex(std::string_view& text, std::size_t least, std::size_t most,
                                     char separator) {
  const std::size_t length = separator == '\0' ? text.size() : text.find(separator);
  if (length == std::string_view::npos || length < least || length > most) return std::nullopt;
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + length, value, 16);
  if (error != std::errc() || end != text.data() + length) return std::nullopt;
  text.remove_prefix(separator == '\0' ? length : length + 1);
  return value;
}

std::optional<Parts> Parse(std::string_view text) {
  const auto domain = TakeHex(text, 4, 8, ':');
  const auto bus = domain ? TakeHex(text, 2, 2, ':') : std::nullopt;
  const auto device = bus ? TakeHex(text, 2, 2, '.') : std::nullopt;
  const auto function = device ? TakeHex(text, 1, 1, '\0') : std::nullopt;
  if (!function) return std::nullopt;
  return Parts(*domain, *bus, *device, *function);
}

}  // namespace

bool IsPciAddress(std::string_view text) { return Parse(text).has_value(); }

bool PciAddressLess(std::string_view a, std::string_view b) {
  const std::optional<Parts> a_parts = Parse(a);
  const std::optional<Parts> b_parts = Parse(b);
  if (a_parts && b_parts && *a_parts != *b_parts) return *a_parts < *b_parts;
  if (a_parts.has_value() != b_parts.has_value()) return a_parts.has_value();
  return a < b;
}

}  // namespace smolvm::gpu
