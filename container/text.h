#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::gpu {

// `text` without ASCII white space at either end.
std::string_view Trim(std::string_view text);

std::string Join(const std::vector<std::string>& parts, std::string_view separator);

// "0,2,5": as NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES take them.
std::string JoinIndices(const std::vector<std::uint32_t>& indices);

// `text` in single quotes on one line, for messages about foreign text: control characters, quotes,
// backslashes and bytes that are not ASCII are escaped, and what goes beyond 64 bytes is cut.
std::string QuoteForMessage(std::string_view text);

// `text` with every byte that is not part of well-formed UTF-8 (RFC 3629) replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace smolvm::gpu
