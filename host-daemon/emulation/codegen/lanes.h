// Which kernels can run several threads at once ("lanes"), and how: the vector tier.
//
// Lanes run in lockstep under masks. Blocks are visited in source order, each for the lanes that
// are at its beginning; control goes back to a loop's head when the last block that jumps to it has
// been visited and lanes wait there. Every lane runs its own instructions in their order, whatever
// the others do.
#pragma once

#include <vector>

#include "host-daemon/emulation/codegen/analysis.h"

namespace smolvm::emulation::codegen {

// How an instruction is translated for several lanes.
enum class LaneForm {
  kTogether,  // as for one thread, over vectors
  kLoad,      // weak loads and stores: one access when the lanes' addresses are neighbours
  kStore,
  kEach,  // for one active lane after the other
};
LaneForm LaneFormOf(const ptx::Instruction& instruction);

struct LanePlan {
  // By register: whether it may differ between lanes. Others are kept once, as scalars.
  std::vector<bool> varies;
  // By register: never read before it is written in the one block that uses it, so that lanes
  // elsewhere have no value in it to keep.
  std::vector<bool> is_temporary;
  // By block: whether some lanes that have not ended may be elsewhere while others run it.
  std::vector<bool> is_divergent;
  // By block: whether it only ends the thread.
  std::vector<bool> only_ends;
  // By block: the heads of loops that control may go back to after it.
  std::vector<std::vector<uint32_t>> heads_after;
};

// False when the kernel's threads must run one by one.
bool PlanLanes(const ptx::Module& module, const KernelFacts& facts, LanePlan* plan);

}  // namespace smolvm::emulation::codegen
