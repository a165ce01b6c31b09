// Basic blocks over a function's instructions.
#pragma once

#include <cstdint>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::ptx {

struct Block {
  // Instructions [begin, end) of Function::body; never empty. Only the last one may be of
  // EndsBlock().
  uint32_t begin = 0;
  uint32_t end = 0;
  // Block numbers. A guarded branch: its target, then the next block (which may be the same one).
  // brx.idx: its targets as listed, doubles included, then the next block if guarded. ret, exit,
  // trap: the next block if guarded.
  std::vector<uint32_t> successors;
  std::vector<uint32_t> predecessors;  // each once
};

struct Cfg {
  std::vector<Block> blocks;             // in source order; 0 is the entry
  std::vector<uint32_t> block_of_label;  // by index in Function::labels
  // The blocks that can be reached from the entry, each before its successors, back edges aside.
  std::vector<uint32_t> reverse_postorder;
  // By block: whether it can be reached.
  std::vector<bool> reachable;
};

// `function` must have a body.
Cfg BuildCfg(const Function& function);

}  // namespace smolvm::emulation::ptx
