#include "host-daemon/emulation/codegen/analysis.h"

#include <algorithm>
#include <functional>
#include <set>

#include "host-daemon/emulation/codegen/call_layout.h"

namespace smolvm::emulation::codegen {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::kNoIndex;
using ptx::Module;
using ptx::Opcode;
using ptx::Operand;
using ptx::Order;
using ptx::StateSpace;
using ptx::SymbolKind;

uint64_t AlignUp(uint64_t value, uint64_t unit) {
  return unit <= 1 ? value : (value + unit - 1) / unit * unit;
}

bool IsShared(StateSpace space) {
  return space == StateSpace::kShared || space == StateSpace::kSharedCluster;
}

void ForOperands(const Function& function, const std::function<void(const Operand&)>& visit) {
  for (const Instruction& instruction : function.body) {
    for (const Operand& operand : instruction.operands) visit(operand);
    for (const Operand& operand : instruction.elements) visit(operand);
  }
  for (const ptx::Call& call : function.calls) {
    for (const Operand& operand : call.arguments) visit(operand);
  }
}

// Direct callees, and whether anything is called through a pointer.
struct Callees {
  std::vector<uint32_t> direct;
  bool indirect = false;
};
Callees CalleesOf(const Function& function) {
  Callees callees;
  for (const Instruction& instruction : function.body) {
    if (instruction.opcode != Opcode::kCall) continue;
    const ptx::Call& call = function.calls[instruction.call];
    if (call.callee.kind == Operand::Kind::kSymbol) {
      callees.direct.push_back(call.callee.symbol.index);
    } else {
      callees.indirect = true;
    }
  }
  return callees;
}

class Analyser {
 public:
  Analyser(const Module& module, KernelFacts* facts) : module_(module), facts_(*facts) {}

  bool Run(uint32_t kernel, std::string* error) {
    facts_.kernel = kernel;
    facts_.address_taken = AddressTakenFunctions(module_);
    if (!Reach(kernel, error)) return false;
    LayOutShared();
    FindRecursion();
    FindWaiting();
    facts_.is_coroutine = WaitsInKernelOnly();
    for (FunctionFacts& f : facts_.functions) {
      LayOutFrame(&f);
      facts_.local_bytes += AlignUp(f.local_bytes, 16);
      facts_.window_bytes += f.frame_bytes;
      facts_.instruction_count += Body(f).body.size();
    }
    return true;
  }

 private:
  const Function& Body(const FunctionFacts& f) const { return module_.functions[f.index]; }

  bool Reach(uint32_t kernel, std::string* error) {
    std::vector<uint32_t> work{kernel};
    while (!work.empty()) {
      const uint32_t index = work.back();
      work.pop_back();
      if (facts_.position.contains(index)) continue;
      const Function& function = module_.functions[index];
      if (!function.has_body) {
        if (BuiltinNamed(function.name) != Builtin::kNone) continue;
        *error = "unresolved extern function `" + std::string(function.name) + "`";
        return false;
      }
      facts_.position[index] = static_cast<uint32_t>(facts_.functions.size());
      FunctionFacts f;
      f.index = index;
      f.cfg = ptx::BuildCfg(function);
      facts_.functions.push_back(std::move(f));
      Callees callees = CalleesOf(function);
      facts_.unbounded_stack |= std::ranges::any_of(function.body, [](const Instruction& i) {
        return i.opcode == Opcode::kAlloca || i.opcode == Opcode::kStackrestore;
      });
      if (callees.indirect) {
        facts_.unbounded_stack = true;
        callees.direct.insert(callees.direct.end(), facts_.address_taken.begin(),
                              facts_.address_taken.end());
      }
      work.insert(work.end(), callees.direct.begin(), callees.direct.end());
    }
    return true;
  }

  void LayOutShared() {
    uint64_t end = 0;
    uint64_t dynamic_alignment = 16;
    std::set<uint32_t> used;
    for (const FunctionFacts& f : facts_.functions) {
      ForOperands(Body(f), [&](const Operand& operand) {
        const bool names = operand.kind == Operand::Kind::kSymbol ||
                           (operand.kind == Operand::Kind::kAddress &&
                            operand.base == Operand::AddressBase::kSymbol);
        if (names && operand.symbol.kind == SymbolKind::kVariable)
          used.insert(operand.symbol.index);
      });
    }
    std::vector<uint32_t> dynamic;
    for (const uint32_t index : used) {
      const ptx::Variable& variable = module_.variables[index];
      if (!IsShared(variable.space)) continue;
      if (variable.is_unsized ||
          (variable.linkage == ptx::Linkage::kExtern && variable.bytes == 0)) {
        dynamic.push_back(index);
        dynamic_alignment = std::max<uint64_t>(dynamic_alignment, variable.alignment);
        continue;
      }
      end = AlignUp(end, variable.alignment);
      facts_.shared_variables[index] = end;
      end += variable.bytes;
    }
    for (FunctionFacts& f : facts_.functions) {
      f.shared_offsets.resize(Body(f).variables.size());
      for (size_t i = 0; i < Body(f).variables.size(); ++i) {
        const ptx::Variable& variable = Body(f).variables[i];
        if (!IsShared(variable.space)) continue;
        end = AlignUp(end, variable.alignment);
        f.shared_offsets[i] = end;
        end += variable.bytes;
      }
    }
    facts_.static_shared_bytes = end;
    facts_.dynamic_shared_offset = AlignUp(end, dynamic_alignment);
    for (const uint32_t index : dynamic)
      facts_.shared_variables[index] = facts_.dynamic_shared_offset;
    if (!dynamic.empty()) facts_.static_shared_bytes = facts_.dynamic_shared_offset;
  }

  // Behind `end`; the end of those that have a place.
  uint64_t PlaceParams(FunctionFacts* f, uint64_t end) const {
    const Function& function = Body(*f);
    f->param_offsets.assign(function.params.size(), kNotInFrame);
    const auto place = [&](const Operand& operand) {
      if (operand.kind != Operand::Kind::kSymbol || operand.symbol.kind != SymbolKind::kParam)
        return;
      uint64_t& offset = f->param_offsets[operand.symbol.index];
      if (offset != kNotInFrame) return;
      const ptx::Variable& param = function.params[operand.symbol.index];
      offset = AlignUp(end, param.alignment);
      end = offset + param.bytes;
    };
    for (const Instruction& instruction : function.body) {
      std::ranges::for_each(instruction.operands, place);
      std::ranges::for_each(instruction.elements, place);
    }
    return end;
  }

  void LayOutFrame(FunctionFacts* f) {
    const Function& function = Body(*f);
    f->local_offsets.resize(function.variables.size());
    uint64_t end = PlaceVariables(f, StateSpace::kLocal, 0);
    if (f->index != facts_.kernel) end = PlaceParams(f, end);
    f->local_bytes = end;
    end = PlaceVariables(f, StateSpace::kParam, end);
    // Frames begin 16-aligned; larger alignments than that are given by nvcc to nothing in local
    // memory.
    f->call_offset = AlignUp(end, kCallBlockAlignment);
    f->frame_bytes = AlignUp(f->call_offset + CallBytes(function), 16);
  }

  uint64_t PlaceVariables(FunctionFacts* f, StateSpace space, uint64_t end) const {
    const Function& function = Body(*f);
    for (size_t i = 0; i < function.variables.size(); ++i) {
      const ptx::Variable& variable = function.variables[i];
      if (variable.space != space) continue;
      end = AlignUp(end, variable.alignment);
      f->local_offsets[i] = end;
      end += variable.bytes;
    }
    return end;
  }

  // Of the largest call that it makes: one is over when the next begins.
  uint64_t CallBytes(const Function& function) const {
    uint64_t most = 0;
    for (const ptx::Call& call : function.calls) {
      const Signature signature = SignatureOf(module_, function, call);
      if (!signature) continue;
      most = std::max(most, CallBlockBytes(LayOut(*signature.returns)) +
                                CallBlockBytes(LayOut(*signature.params)));
    }
    return most;
  }

  // Calls that lead back to where they came from. (Those through pointers, which may lead anywhere,
  // Reach() has noted.)
  void FindRecursion() {
    std::vector<std::vector<uint32_t>> callees;
    for (const FunctionFacts& f : facts_.functions) {
      std::vector<uint32_t>& own = callees.emplace_back();
      for (const uint32_t callee : CalleesOf(Body(f)).direct) {
        const auto at = facts_.position.find(callee);
        if (at != facts_.position.end()) own.push_back(at->second);
      }
    }
    std::vector<bool> cyclic;
    Components(
        callees.size(), [&](uint32_t k) -> const auto& { return callees[k]; }, &cyclic);
    facts_.unbounded_stack |= std::ranges::find(cyclic, true) != cyclic.end();
  }

  // ---- which kernels need a fibre for each thread ----

  // An instruction whose result another thread may change: what a waiting loop looks at.
  static bool Observes(const Instruction& instruction, const std::vector<bool>& read) {
    switch (instruction.opcode) {
      case Opcode::kLd: {
        const Order order = instruction.modifiers.order;
        return order != Order::kNone && order != Order::kWeak;
      }
      case Opcode::kAtom: {
        const Operand& destination = instruction.operands[0];
        return !destination.is_register() || read[destination.index];
      }
      case Opcode::kNanosleep:
      case Opcode::kMbarrierTestWait:
      case Opcode::kMbarrierTryWait:
        return true;
      default:
        return false;
    }
  }

  static std::vector<bool> ReadRegisters(const Function& function) {
    std::vector<bool> read(function.registers.size(), false);
    const auto note = [&](const Operand& operand) {
      const bool base = operand.kind == Operand::Kind::kAddress &&
                        operand.base == Operand::AddressBase::kRegister;
      if (operand.is_register() || base) read[operand.index] = true;
    };
    for (const Instruction& instruction : function.body) {
      const size_t written = ptx::InfoOf(instruction.opcode).destinations;
      for (size_t i = written; i < instruction.operands.size(); ++i) note(instruction.operands[i]);
      for (const Operand& operand : instruction.elements) note(operand);
      if (instruction.guarded()) read[instruction.guard] = true;
    }
    for (const ptx::Call& call : function.calls) {
      note(call.callee);
      for (const Operand& operand : call.arguments) note(operand);
    }
    return read;
  }

  // Strongly connected components of `n` nodes (Tarjan), without recursion in the depth of hostile
  // inputs; by node, the number of its component, and by component, whether it has a cycle.
  template <typename Successors>
  static std::vector<uint32_t> Components(size_t n, const Successors& successors_of,
                                          std::vector<bool>* cyclic) {
    std::vector<uint32_t> component(n, kNoIndex), order(n, kNoIndex), low(n, 0);
    std::vector<uint32_t> stack;
    std::vector<bool> on_stack(n, false);
    struct Visit {
      uint32_t block;
      size_t next;
    };
    uint32_t counter = 0, count = 0;
    std::vector<Visit> visits;
    for (uint32_t root = 0; root < n; ++root) {
      if (order[root] != kNoIndex) continue;
      visits.push_back({root, 0});
      while (!visits.empty()) {
        Visit& visit = visits.back();
        const uint32_t b = visit.block;
        if (visit.next == 0 && order[b] == kNoIndex) {
          order[b] = low[b] = counter++;
          stack.push_back(b);
          on_stack[b] = true;
        }
        if (visit.next < successors_of(b).size()) {
          const uint32_t to = successors_of(b)[visit.next++];
          if (order[to] == kNoIndex) {
            visits.push_back({to, 0});
          } else if (on_stack[to]) {
            low[b] = std::min(low[b], order[to]);
          }
          continue;
        }
        if (low[b] == order[b]) {
          uint32_t member;
          size_t size = 0;
          do {
            member = stack.back();
            stack.pop_back();
            on_stack[member] = false;
            component[member] = count;
            ++size;
          } while (member != b);
          const auto& to = successors_of(b);
          cyclic->push_back(size > 1 || std::find(to.begin(), to.end(), b) != to.end());
          ++count;
        }
        visits.pop_back();
        if (!visits.empty()) {
          const uint32_t parent = visits.back().block;
          low[parent] = std::min(low[parent], low[b]);
        }
      }
    }
    return component;
  }

  void FindWaiting() {
    // Functions that observe, by themselves or through what they call.
    std::vector<bool> observes(facts_.functions.size(), false);
    std::vector<std::vector<bool>> read;
    for (size_t i = 0; i < facts_.functions.size(); ++i) {
      const Function& function = Body(facts_.functions[i]);
      read.push_back(ReadRegisters(function));
      for (const Instruction& instruction : function.body) {
        if (Observes(instruction, read[i])) observes[i] = true;
        if (MeetsOthers(instruction)) facts_.needs_fibres = true;
        // "exit" in a called function ends the thread: easy on a fibre, and rare.
        if (instruction.opcode == Opcode::kExit && i != 0) facts_.needs_fibres = true;
      }
    }
    const auto call_observes = [&](const Function& function, const Instruction& instruction) {
      if (instruction.opcode != Opcode::kCall) return false;
      const ptx::Call& call = function.calls[instruction.call];
      if (call.callee.kind != Operand::Kind::kSymbol) return true;
      const auto found = facts_.position.find(call.callee.symbol.index);
      return found != facts_.position.end() && observes[found->second];
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < facts_.functions.size(); ++i) {
        if (observes[i]) continue;
        const Function& function = Body(facts_.functions[i]);
        for (const Instruction& instruction : function.body) {
          if (call_observes(function, instruction)) observes[i] = changed = true;
        }
      }
    }
    for (size_t i = 0; i < facts_.functions.size(); ++i) {
      FunctionFacts& f = facts_.functions[i];
      const Function& function = Body(f);
      std::vector<bool> cyclic;
      const std::vector<uint32_t> component = Components(
          f.cfg.blocks.size(),
          [&](uint32_t b) -> const auto& { return f.cfg.blocks[b].successors; }, &cyclic);
      std::vector<bool> waits(cyclic.size(), false);
      for (size_t b = 0; b < f.cfg.blocks.size(); ++b) {
        for (uint32_t k = f.cfg.blocks[b].begin; k < f.cfg.blocks[b].end; ++k) {
          const Instruction& instruction = function.body[k];
          if (Observes(instruction, read[i]) || call_observes(function, instruction))
            waits[component[b]] = true;
        }
      }
      f.block_in_waiting_loop.assign(f.cfg.blocks.size(), false);
      for (size_t b = 0; b < f.cfg.blocks.size(); ++b) {
        if (!cyclic[component[b]] || !waits[component[b]]) continue;
        f.block_in_waiting_loop[b] = true;
        facts_.needs_fibres = true;
      }
    }
  }

  bool WaitsInKernelOnly() const {
    if (!facts_.needs_fibres || facts_.unbounded_stack) return false;
    // What the compiler takes for a coroutine grows with blocks times waits.
    constexpr size_t kMostWaits = 200;
    size_t waits = 0;
    for (const FunctionFacts& f : facts_.functions) {
      const bool is_kernel = f.index == facts_.kernel;
      const auto& loops = f.block_in_waiting_loop;
      const auto looping = std::count(loops.begin(), loops.end(), true);
      if (!is_kernel && looping != 0) return false;
      waits += static_cast<size_t>(looping);
      for (const Instruction& instruction : Body(f).body) {
        const bool meets = MeetsOthers(instruction);
        if (!is_kernel && (meets || instruction.opcode == Opcode::kExit)) return false;
        waits += meets;
      }
    }
    return waits <= kMostWaits;
  }

  const Module& module_;
  KernelFacts& facts_;
};

}  // namespace

bool MeetsOthers(const Instruction& instruction) {
  switch (instruction.opcode) {
    case Opcode::kBarSync:
    case Opcode::kBarArrive:
    case Opcode::kBarRed:
    case Opcode::kBarWarpSync:
    case Opcode::kBarrierClusterArrive:
    case Opcode::kBarrierClusterWait:
    case Opcode::kShfl:
    case Opcode::kVote:
    case Opcode::kMatch:
    case Opcode::kRedux:
    case Opcode::kActivemask:
    case Opcode::kElect:
    case Opcode::kMovmatrix:
    case Opcode::kMma:
    case Opcode::kWmmaMma:
    case Opcode::kWmmaLoad:
    case Opcode::kWmmaStore:
    case Opcode::kLdmatrix:
    case Opcode::kStmatrix:
      return true;
    default:
      return false;
  }
}

Builtin BuiltinNamed(std::string_view name) {
  if (name == "vprintf") return Builtin::kVprintf;
  if (name == "__assertfail") return Builtin::kAssertFail;
  if (name == "malloc") return Builtin::kMalloc;
  if (name == "free") return Builtin::kFree;
  return Builtin::kNone;
}

std::vector<uint32_t> AddressTakenFunctions(const Module& module) {
  std::set<uint32_t> taken;
  for (const Function& function : module.functions) {
    ForOperands(function, [&](const Operand& operand) {
      if (operand.kind == Operand::Kind::kSymbol && operand.symbol.kind == SymbolKind::kFunction) {
        taken.insert(operand.symbol.index);
      }
    });
  }
  for (const ptx::Variable& variable : module.variables) {
    for (const ptx::Relocation& relocation : variable.relocations) {
      if (relocation.symbol.kind == SymbolKind::kFunction) taken.insert(relocation.symbol.index);
    }
  }
  std::vector<uint32_t> result;
  for (const uint32_t index : taken) {
    if (module.functions[index].has_body && !module.functions[index].is_entry)
      result.push_back(index);
  }
  return result;
}

bool AnalyseKernel(const Module& module, uint32_t kernel, KernelFacts* facts, std::string* error) {
  return Analyser(module, facts).Run(kernel, error);
}

}  // namespace smolvm::emulation::codegen
