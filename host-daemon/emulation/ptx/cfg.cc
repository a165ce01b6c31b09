#include "host-daemon/emulation/ptx/cfg.h"

#include <algorithm>

namespace smolvm::emulation::ptx {
namespace {

std::vector<uint32_t> FirstInstructions(const Function& function) {
  std::vector<bool> begins(function.body.size() + 1, false);
  begins[0] = true;
  for (const Label& label : function.labels) begins[label.instruction] = true;
  for (size_t i = 0; i < function.body.size(); ++i) {
    if (EndsBlock(function.body[i].opcode)) begins[i + 1] = true;
  }
  std::vector<uint32_t> firsts;
  for (uint32_t i = 0; i < function.body.size(); ++i) {
    if (begins[i]) firsts.push_back(i);
  }
  return firsts;
}

void AddSuccessors(const Function& function, const Cfg& cfg, uint32_t index, Block* block) {
  const Instruction& last = function.body[block->end - 1];
  if (last.opcode == Opcode::kBra) {
    block->successors.push_back(cfg.block_of_label[last.operands[0].index]);
  } else if (last.opcode == Opcode::kBrxIdx) {
    for (const uint32_t label : function.branch_targets[last.operands[1].index].labels) {
      block->successors.push_back(cfg.block_of_label[label]);
    }
  }
  if (!EndsBlock(last.opcode) || last.guarded()) block->successors.push_back(index + 1);
}

// Depth first, with a stack of our own: a guest's function may be as deep as it is long.
void VisitReachable(Cfg* cfg) {
  struct Visit {
    uint32_t block;
    size_t next;
  };
  cfg->reachable.assign(cfg->blocks.size(), false);
  std::vector<Visit> stack{{0, 0}};
  cfg->reachable[0] = true;
  while (!stack.empty()) {
    Visit& visit = stack.back();
    const std::vector<uint32_t>& successors = cfg->blocks[visit.block].successors;
    if (visit.next == successors.size()) {
      cfg->reverse_postorder.push_back(visit.block);
      stack.pop_back();
      continue;
    }
    const uint32_t next = successors[visit.next++];
    if (cfg->reachable[next]) continue;
    cfg->reachable[next] = true;
    stack.push_back({next, 0});
  }
  std::ranges::reverse(cfg->reverse_postorder);
}

}  // namespace

Cfg BuildCfg(const Function& function) {
  Cfg cfg;
  const std::vector<uint32_t> firsts = FirstInstructions(function);
  cfg.blocks.resize(firsts.size());
  for (size_t i = 0; i < firsts.size(); ++i) {
    cfg.blocks[i].begin = firsts[i];
    cfg.blocks[i].end =
        static_cast<uint32_t>(i + 1 < firsts.size() ? firsts[i + 1] : function.body.size());
  }
  for (const Label& label : function.labels) {
    const auto block = std::ranges::lower_bound(firsts, label.instruction);
    cfg.block_of_label.push_back(static_cast<uint32_t>(block - firsts.begin()));
  }
  for (uint32_t i = 0; i < cfg.blocks.size(); ++i) {
    AddSuccessors(function, cfg, i, &cfg.blocks[i]);
    for (const uint32_t successor : cfg.blocks[i].successors) {
      std::vector<uint32_t>& predecessors = cfg.blocks[successor].predecessors;
      if (predecessors.empty() || predecessors.back() != i) predecessors.push_back(i);
    }
  }
  VisitReachable(&cfg);
  return cfg;
}

}  // namespace smolvm::emulation::ptx
