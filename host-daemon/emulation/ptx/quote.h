// Source text in messages.
#pragma once

#include <string>
#include <string_view>

namespace smolvm::emulation::ptx {

// In single quotes, without control characters, and shortened when it is very long.
inline std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 128;
  std::string quoted;
  quoted += '\'';
  for (const char c : text.substr(0, kMost)) quoted += c >= ' ' && c <= '~' ? c : '?';
  if (text.size() > kMost) quoted += "...";
  quoted += '\'';
  return quoted;
}

}  // namespace smolvm::emulation::ptx
