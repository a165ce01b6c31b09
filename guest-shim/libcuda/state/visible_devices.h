// CUDA_VISIBLE_DEVICES, as the CUDA programming guide describes it: ordinals or UUIDs ("GPU-…", any
// unambiguous beginning), in the order in which the program sees them; what follows an invalid
// entry is invisible.
#pragma once

#include <vector>

#include "protocol/api/session.wire.h"

namespace smolvm::guest {

// Host ordinals. `text`: the variable's value; null: unset, all devices.
std::vector<int> VisibleDevices(const std::vector<api::Device>& devices, const char* text);

}  // namespace smolvm::guest
