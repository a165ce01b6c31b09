#include "host-daemon/emulation/codegen/lanes.h"

#include <algorithm>

namespace smolvm::emulation::codegen {
namespace {

using ptx::Instruction;
using ptx::kNoIndex;
using ptx::Opcode;
using ptx::Operand;
using ptx::Order;
using ptx::Special;

// What is compiled twice stays small: beyond these the code costs more than it saves.
constexpr size_t kMostInstructions = 1000;
constexpr size_t kMostBlocks = 150;

bool EndsThread(const Instruction& instruction) {
  return instruction.opcode == Opcode::kRet || instruction.opcode == Opcode::kExit;
}

class Planner {
 public:
  Planner(const ptx::Function& function, const ptx::Cfg& cfg, LanePlan* plan)
      : f_(function), cfg_(cfg), plan_(*plan), count_(cfg.blocks.size()) {}

  void Run() {
    FindEnds();
    FindHeads();
    FindTemporaries();
    plan_.varies.assign(f_.registers.size(), false);
    plan_.is_divergent.assign(count_, false);
    const bool structured = FindPostdominators();
    if (!structured) DivergeEverywhere();
    while (Propagate()) {
    }
  }

  // Lanes wait for other groups of lanes, never for each other: only at barriers of the whole
  // block, and where all of them come together.
  bool WaitsTogether() const {
    for (uint32_t k = 0; k < count_; ++k) {
      if (!cfg_.reachable[k]) continue;
      for (uint32_t n = cfg_.blocks[k].begin; n < cfg_.blocks[k].end; ++n) {
        const Instruction& i = f_.body[n];
        if (!MeetsOthers(i)) continue;
        const bool is_plain = i.opcode == Opcode::kBarSync && i.operands.size() == 1 &&
                              i.operands[0].is_immediate() && !i.guarded();
        if (!is_plain || plan_.is_divergent[k]) return false;
      }
    }
    return true;
  }

 private:
  const Instruction& Last(uint32_t block) const { return f_.body[cfg_.blocks[block].end - 1]; }

  void FindEnds() {
    plan_.only_ends.assign(count_, false);
    for (uint32_t k = 0; k < count_; ++k) {
      const ptx::Block& block = cfg_.blocks[k];
      plan_.only_ends[k] =
          block.end - block.begin == 1 && EndsThread(Last(k)) && !Last(k).guarded();
    }
  }

  // A head's lanes wait until all that may come to it have come: after the last block that jumps
  // there.
  void FindHeads() {
    plan_.heads_after.assign(count_, {});
    last_latch_.assign(count_, kNoIndex);
    for (uint32_t k = 0; k < count_; ++k) {
      if (!cfg_.reachable[k]) continue;
      for (const uint32_t to : cfg_.blocks[k].successors) {
        if (to <= k) last_latch_[to] = k;
      }
    }
    // Of loops that end together the inner one's lanes come to rest first.
    for (uint32_t head = static_cast<uint32_t>(count_); head-- > 0;) {
      if (last_latch_[head] != kNoIndex) plan_.heads_after[last_latch_[head]].push_back(head);
    }
  }

  void FindTemporaries() {
    std::vector<uint32_t> home(f_.registers.size(), kNoIndex);
    plan_.is_temporary.assign(f_.registers.size(), true);
    const auto use = [&](uint32_t reg, uint32_t block, bool is_read) {
      if (home[reg] == kNoIndex) {
        home[reg] = block;
        if (is_read) plan_.is_temporary[reg] = false;
      }
      if (home[reg] != block) plan_.is_temporary[reg] = false;
    };
    for (uint32_t k = 0; k < count_; ++k) {
      for (uint32_t n = cfg_.blocks[k].begin; n < cfg_.blocks[k].end; ++n) {
        const Instruction& i = f_.body[n];
        ForReads(i, [&](const Operand& operand) { use(operand.index, k, true); });
        if (i.guarded()) use(i.guard, k, true);
        // A guarded write keeps the old value in some lanes, which may be read.
        ForWrites(i, [&](const Operand& operand) { use(operand.index, k, i.guarded()); });
      }
    }
  }

  template <typename Visit>
  static void VisitRegisters(const Instruction& i, const Operand& operand, const Visit& visit) {
    if (operand.is_register() || (operand.kind == Operand::Kind::kAddress &&
                                  operand.base == Operand::AddressBase::kRegister)) {
      visit(operand);
    } else if (operand.kind == Operand::Kind::kVector || operand.kind == Operand::Kind::kGroup) {
      for (const Operand& element : i.ElementsOf(operand)) VisitRegisters(i, element, visit);
    }
  }
  template <typename Visit>
  static void ForReads(const Instruction& i, const Visit& visit) {
    for (size_t k = ptx::InfoOf(i.opcode).destinations; k < i.operands.size(); ++k)
      VisitRegisters(i, i.operands[k], visit);
  }
  template <typename Visit>
  static void ForWrites(const Instruction& i, const Visit& visit) {
    const size_t written = ptx::InfoOf(i.opcode).destinations;
    for (size_t k = 0; k < written && k < i.operands.size(); ++k)
      VisitRegisters(i, i.operands[k], visit);
    VisitRegisters(i, i.second_destination, visit);
  }

  // ---- uniformity ----

  static bool IsVarying(const Operand& special) {
    switch (special.special()) {
      case Special::kTid:
        return special.component == 0;
      case Special::kLaneid:
      case Special::kWarpid:
      case Special::kLanemaskEq:
      case Special::kLanemaskLt:
      case Special::kLanemaskLe:
      case Special::kLanemaskGe:
      case Special::kLanemaskGt:
        return true;
      default:
        return false;
    }
  }

  bool ResultVaries(const Instruction& i) const {
    // A carry is kept for each lane.
    const bool reads_carry =
        i.opcode == Opcode::kAddc || i.opcode == Opcode::kSubc || i.opcode == Opcode::kMadc;
    if (reads_carry || LaneFormOf(i) == LaneForm::kEach) return true;
    if (i.guarded() && plan_.varies[i.guard]) return true;
    bool varies = false;
    ForReads(i, [&](const Operand& operand) { varies = varies || plan_.varies[operand.index]; });
    const auto special = [&](const Operand& operand) {
      return operand.kind == Operand::Kind::kSpecial && IsVarying(operand);
    };
    return varies || std::ranges::any_of(i.operands, special) ||
           std::ranges::any_of(i.elements, special);
  }

  bool Propagate() {
    bool changed = false;
    for (uint32_t k = 0; k < count_; ++k) {
      if (!cfg_.reachable[k]) continue;
      for (uint32_t n = cfg_.blocks[k].begin; n < cfg_.blocks[k].end; ++n) {
        const Instruction& i = f_.body[n];
        if (!plan_.is_divergent[k] && !ResultVaries(i)) continue;
        ForWrites(i, [&](const Operand& operand) {
          changed = changed || !plan_.varies[operand.index];
          plan_.varies[operand.index] = true;
        });
      }
      const Instruction& last = Last(k);
      const bool splits = last.opcode == Opcode::kBra && last.guarded() && plan_.varies[last.guard];
      if (splits) changed = Diverge(k) || changed;
    }
    return changed;
  }

  // Lanes that end at once leave all others together.
  std::vector<uint32_t> StayingSuccessors(uint32_t block) const {
    std::vector<uint32_t> staying;
    for (const uint32_t to : cfg_.blocks[block].successors) {
      if (!plan_.only_ends[to]) staying.push_back(to);
    }
    return staying.empty() ? cfg_.blocks[block].successors : staying;
  }

  // False when some block never reaches the end: then nothing is known about where lanes meet.
  bool FindPostdominators() {
    after_.assign(count_, std::vector<bool>(count_, true));
    std::vector<bool> ends(count_, false);
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t k = static_cast<uint32_t>(count_); k-- > 0;) {
        if (!cfg_.reachable[k]) continue;
        const std::vector<uint32_t> successors = StayingSuccessors(k);
        const bool reaches = successors.empty() ||
                             std::ranges::any_of(successors, [&](uint32_t to) { return ends[to]; });
        std::vector<bool> set(count_, !successors.empty());
        for (const uint32_t to : successors) {
          for (size_t j = 0; j < count_; ++j) set[j] = set[j] && after_[to][j];
        }
        set[k] = true;
        changed = changed || set != after_[k] || reaches != ends[k];
        after_[k] = std::move(set);
        ends[k] = reaches;
      }
    }
    for (uint32_t k = 0; k < count_; ++k) {
      if (cfg_.reachable[k] && !ends[k]) return false;
    }
    return true;
  }

  // The lanes of `block` part ways until its nearest postdominator.
  bool Diverge(uint32_t block) {
    const std::vector<uint32_t> successors = StayingSuccessors(block);
    if (successors.size() < 2) return false;
    std::vector<uint32_t> work = successors, region;
    std::vector<bool> seen(count_, false);
    uint32_t meeting = kNoIndex;
    while (!work.empty()) {
      const uint32_t k = work.back();
      work.pop_back();
      if (seen[k]) continue;
      seen[k] = true;
      if (k != block && after_[block][k]) {
        meeting = k;
        continue;
      }
      region.push_back(k);
      for (const uint32_t to : StayingSuccessors(k)) work.push_back(to);
    }
    if (meeting != kNoIndex && !Drains(block, region, meeting)) return DivergeEverywhere();
    bool changed = false;
    for (const uint32_t k : region) {
      changed = changed || !plan_.is_divergent[k];
      plan_.is_divergent[k] = true;
    }
    return changed;
  }

  // Whether all lanes that parted at the end of `block` are at `meeting` before any of them runs
  // it. Either the region lies before it in source order and comes to rest there: no lane of it
  // waits at a head until blocks behind the meeting have been visited. Or the meeting is the head
  // of a loop that the region lies in, and lanes come by branches back alone.
  bool Drains(uint32_t block, const std::vector<uint32_t>& region, uint32_t meeting) const {
    const auto rests_by = [&](uint32_t k, uint32_t last) {
      return last_latch_[k] == kNoIndex || last_latch_[k] <= last;
    };
    if (block < meeting) {
      return std::ranges::all_of(
          region, [&](uint32_t k) { return k < meeting && rests_by(k, meeting - 1); });
    }
    const uint32_t end = last_latch_[meeting];
    if (end == kNoIndex || block > end) return false;
    return std::ranges::all_of(
        region, [&](uint32_t k) { return meeting <= k && k <= end && rests_by(k, end); });
  }

  bool DivergeEverywhere() {
    const bool changed = std::ranges::find(plan_.is_divergent, false) != plan_.is_divergent.end();
    plan_.is_divergent.assign(count_, true);
    return changed;
  }

  const ptx::Function& f_;
  const ptx::Cfg& cfg_;
  LanePlan& plan_;
  const size_t count_;
  std::vector<uint32_t> last_latch_;      // by head
  std::vector<std::vector<bool>> after_;  // by block: its postdominators
};

}  // namespace

LaneForm LaneFormOf(const Instruction& i) {
  const bool is_weak = i.modifiers.order == Order::kNone || i.modifiers.order == Order::kWeak;
  switch (i.opcode) {
    case Opcode::kLd:
    case Opcode::kLdu:
      return is_weak ? LaneForm::kLoad : LaneForm::kEach;
    case Opcode::kSt:
      return is_weak ? LaneForm::kStore : LaneForm::kEach;
    case Opcode::kAtom:
    case Opcode::kRed:
    case Opcode::kCpAsync:
    case Opcode::kCpAsyncMbarrierArrive:
    case Opcode::kMbarrierInit:
    case Opcode::kMbarrierInval:
    case Opcode::kMbarrierArrive:
    case Opcode::kMbarrierArriveDrop:
    case Opcode::kMbarrierTestWait:
    case Opcode::kMbarrierTryWait:
    case Opcode::kMbarrierPendingCount:
    case Opcode::kNanosleep:
      return LaneForm::kEach;
    default:
      return LaneForm::kTogether;
  }
}

bool PlanLanes(const ptx::Module& module, const KernelFacts& facts, LanePlan* plan) {
  if ((facts.needs_fibres && !facts.is_coroutine) || facts.functions.size() != 1 ||
      facts.window_bytes != 0 || facts.unbounded_stack ||
      facts.instruction_count > kMostInstructions) {
    return false;
  }
  const FunctionFacts& kernel = facts.functions[0];
  const std::vector<bool>& waits = kernel.block_in_waiting_loop;
  if (kernel.cfg.blocks.size() > kMostBlocks || std::ranges::find(waits, true) != waits.end())
    return false;
  const ptx::Function& function = module.functions[kernel.index];
  const bool refused = std::ranges::any_of(function.body, [](const Instruction& i) {
    return i.opcode == Opcode::kCall || i.opcode == Opcode::kBrxIdx;
  });
  if (refused) return false;
  Planner planner(function, kernel.cfg, plan);
  planner.Run();
  return planner.WaitsTogether();
}

}  // namespace smolvm::emulation::codegen
