#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "host-daemon/session/call.h"

namespace smolvm::dispatch {

// Reads the request's bulk as it arrives: what is allocated is what was sent. False: the guest is
// gone.
inline bool ReadImage(session::Call& call, std::vector<std::byte>* image) {
  constexpr size_t kStep = size_t{1} << 20;
  while (call.bulk_left() > 0) {
    const size_t size = std::min<uint64_t>(call.bulk_left(), kStep);
    const size_t old = image->size();
    image->resize(old + size);
    if (!call.ReadBulk(image->data() + old, size)) return false;
  }
  return true;
}

}  // namespace smolvm::dispatch
