// The members of a Unix archive ("!<arch>"), as `ar` and `nvcc -lib` write it. Source: ar(5).
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string_view>

namespace smolvm::emulation {

// Calls `visit` for each member but the archive's own tables of symbols and names. Every member
// lies in `archive`. False: no archive, or damaged; some members may have been visited.
bool ForEachMember(
    std::span<const std::byte> archive,
    const std::function<void(std::string_view name, std::span<const std::byte> bytes)>& visit);

}  // namespace smolvm::emulation
