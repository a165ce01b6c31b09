// The sections of an ELF-64 file, little-endian: of host objects with device code in them, and of
// linked images. Source: System V ABI, chapter 4.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

namespace smolvm::emulation {

// Calls `visit` with the name and the bytes of each section that has bytes. Every section lies in
// `file`. False: no ELF-64 file, or its headers are damaged; some sections may have been visited.
bool ForEachSection(
    std::span<const std::byte> file,
    const std::function<void(std::string_view name, std::span<const std::byte> bytes)>& visit);

}  // namespace smolvm::emulation
