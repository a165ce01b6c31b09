// The sections of an ELF-64 file, little-endian: of cubins, of host objects with device code in
// them, and of linked images. Source: System V ABI, chapter 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

namespace smolvm::image {

// Calls `visit` with the name and the bytes of each section that has bytes. Every section lies in
// `file`. False: no ELF-64 file, or its headers are damaged; some sections may have been visited.
bool ForEachSection(
    std::span<const std::byte> file,
    const std::function<void(std::string_view name, std::span<const std::byte> bytes)>& visit);

// The same of the name and the size in memory of each section, of those too that have no bytes in
// the file.
bool ForEachSectionSize(std::span<const std::byte> file,
                        const std::function<void(std::string_view name, uint64_t size)>& visit);

}  // namespace smolvm::image
