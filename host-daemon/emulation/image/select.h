// From an image that CUDA's loaders take to the PTX in it that this device runs.
//
// Selection: of a container's PTX entries, the newest architecture that is not newer than the
// device's. Those for one architecture only ("sm_90a") are taken on exactly that device, those for
// a family ("sm_100f") on members of it that are not older; of entries for the same architecture
// the plain one. SASS is passed over: this device runs PTX.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

namespace smolvm::emulation {

// One PTX source of the image. A version 2 wrapper (-rdc=true) may have several, to be linked, and
// what cuLinkComplete made has all that were (linked_image.h).
struct PtxText {
  std::string text;
  std::string name;      // for messages; may be empty
  int architecture = 0;  // 90 of compute_90; 0 for an image that is PTX itself
  char suffix = '\0';    // 'a', 'f' or none
};

// `image`: see Program::Load. CUDA_ERROR_INVALID_IMAGE: nothing that a loader takes, or damaged.
// CUDA_ERROR_NO_BINARY_FOR_GPU: no PTX for this device; `*error` and one log line say what to
// change.
CUresult SelectPtx(const void* image, int compute_capability, std::vector<PtxText>* texts,
                   std::string* error);

}  // namespace smolvm::emulation
