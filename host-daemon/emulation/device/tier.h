// How kernels run: one thread after the other, several at once (where the kernel and the processor
// allow it), or the second as soon as it pays. See docs/emulation.md.
#pragma once

namespace smolvm::emulation {

enum class Tier { kAuto, kScalar, kVector };

}  // namespace smolvm::emulation
