// How much device memory an image's variables take once it is loaded: what a session with a limit
// is charged for code. The driver cannot be asked.
//
// A cubin has them in sections (.nv.global, .nv.global.init, .nv.constant3 …), PTX in declarations
// at its module's level (PTX ISA, state spaces: .global and .const). Of a fatbin's entries the
// driver runs one, so the largest counts.
//
// Images come from hostile guests: what is not understood is not guessed at, and the answer is
// never too low for what a loader takes. Threads: every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace smolvm::image {

// Larger than any device: sums stop here.
inline constexpr uint64_t kMaxVariableBytes = uint64_t{1} << 60;

// Nullopt: a declaration is not understood.
std::optional<uint64_t> PtxVariableBytes(std::string_view ptx);

// `flat` is what FlatImage::Read has accepted. Nullopt: a part of it is not understood.
std::optional<uint64_t> VariableBytes(std::span<const std::byte> flat);

}  // namespace smolvm::image
