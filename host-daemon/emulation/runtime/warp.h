// The results of warp-wide operations, computed by the last lane to arrive. Pure functions of the
// lanes' slots.
#pragma once

#include <cstdint>

#include "host-daemon/emulation/runtime/block.h"

namespace smolvm::emulation {

// Reads and writes the slots of the lanes in `mask`. `mode` is the operation's own enumeration.
void ComputeWarpOp(WarpOp op, uint32_t mode, uint32_t mask, LaneSlot* lanes);

}  // namespace smolvm::emulation
