// The payload of a fatbin entry, unpacked. A library of its own: the guest needs none of it.
#pragma once

#include <string>

#include "protocol/image/fatbin.h"

namespace smolvm::image {

// The most that one entry may unpack to, and the most per packed byte: a guest's image of some
// kilobytes must not become gigabytes here. Text packs to a tenth or a twentieth; a kernel of
// unrolled code to a hundredth.
inline constexpr size_t kMaxUnpackedBytes = size_t{64} << 20;
inline constexpr size_t kMaxUnpackedPerByte = 1024;

// False: damaged, too large, or packed in a way that is not known; `*error` says which.
bool Unpack(const FatbinEntry& entry, std::string* bytes, std::string* error);
// The same of a text: it ends at its first NUL.
bool UnpackPtx(const FatbinEntry& entry, std::string* text, std::string* error);

}  // namespace smolvm::image
