#pragma once

#include <cstddef>

namespace smolvm::machine {

// The largest read or write of a share (the kernel allows 256 pages) and, with room for a header
// and two names, the largest message.
inline constexpr size_t kMaxShareData = 256 << 10;
inline constexpr size_t kMaxShareMessage = kMaxShareData + 16384;

}  // namespace smolvm::machine
