#include "host-daemon/emulation/codegen/effort.h"

#include <fmt/format.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Module.h>

#include <cstdlib>
#include <iterator>
#include <vector>

namespace smolvm::emulation::codegen {
namespace {

// Of a module's IR as emitted; `ways` lead from block to block.
struct Size {
  uint64_t instructions = 0, blocks = 0, ways = 0, functions = 0;
};

Size SizeOf(const llvm::Module& module) {
  Size size;
  for (const llvm::Function& function : module) {
    ++size.functions;
    for (const llvm::BasicBlock& block : function) {
      ++size.blocks;
      size.instructions += block.size();
      size.ways += block.getTerminator()->getNumSuccessors();
    }
  }
  return size;
}

// Measured on one core of an AMD EPYC (Milan); each of these alone takes one or two seconds. Of
// full effort 2000 blocks, which are 500 checked generic accesses in a row (1.6 s; twice as
// many 5.6 s) or 2000 branches to all over (1.6 s); of plain effort 1000 such accesses (1.8 s).
// 10,000 ways between 100 blocks took 1.0 s (40,000 between 200: 7.5 s), 500 functions in a
// chain 1.2 s.
constexpr Size kMostForFull{80'000, 2'000, 12'000, 500};
constexpr Size kMostForPlain{120'000, 4'500, 12'000, 500};
// Quick effort: 1,250,000 instructions took 12 s, four million ways 25 s.
constexpr double kMsAnInstruction = 0.009;
constexpr double kMsAWay = 0.006;
// An instruction of PTX becomes at least so many.
constexpr double kLeastIrInstructions = 2;

bool IsWithin(const Size& size, const Size& most) {
  return size.instructions <= most.instructions && size.blocks <= most.blocks &&
         size.ways <= most.ways && size.functions <= most.functions;
}

std::string Refusal(double ms, uint64_t limit_ms) {
  if (limit_ms == 0 || ms <= static_cast<double>(limit_ms)) return "";
  return fmt::format(
      "it is too large: compiling it would take about {:.1f} s, more than the limit of {:.1f} s "
      "(smolvm-cuda-daemon --compile-limit, or SMOLVM_CUDA_COMPILE_LIMIT_MS)",
      ms / 1e3, static_cast<double>(limit_ms) / 1e3);
}

}  // namespace

std::string EffortSetting() {
  const char* text = getenv("SMOLVM_CUDA_EMULATION_EFFORT");
  return text == nullptr ? "" : text;
}

Effort EffortFor(const llvm::Module& module) {
  const std::string setting = EffortSetting();
  if (setting == "full") return Effort::kFull;
  if (setting == "plain") return Effort::kPlain;
  if (setting == "quick") return Effort::kQuick;
  const Size size = SizeOf(module);
  return IsWithin(size, kMostForFull)    ? Effort::kFull
         : IsWithin(size, kMostForPlain) ? Effort::kPlain
                                         : Effort::kQuick;
}

std::string TooMuchToEmit(const KernelFacts& facts, uint64_t limit_ms) {
  const auto instructions = static_cast<double>(facts.instruction_count);
  return Refusal(instructions * kLeastIrInstructions * kMsAnInstruction, limit_ms);
}

std::string TooMuchToCompile(const llvm::Module& module, uint64_t limit_ms) {
  if (EffortFor(module) != Effort::kQuick) return "";
  const Size size = SizeOf(module);
  return Refusal(static_cast<double>(size.instructions) * kMsAnInstruction +
                     static_cast<double>(size.ways) * kMsAWay,
                 limit_ms);
}

void CutLongBlocks(llvm::Module& module) {
  constexpr ptrdiff_t kMostInstructions = 400;
  for (llvm::Function& function : module) {
    std::vector<llvm::BasicBlock*> blocks;
    for (llvm::BasicBlock& block : function) blocks.push_back(&block);
    for (llvm::BasicBlock* block : blocks) {
      // From the end: a cut moves what lies behind it.
      auto at = block->end();
      for (ptrdiff_t left = std::distance(block->begin(), at); left > kMostInstructions;
           left -= kMostInstructions) {
        at = std::prev(at, kMostInstructions);
        // Phis and allocas stay together at the beginning.
        if (llvm::isa<llvm::PHINode>(*at) || llvm::isa<llvm::AllocaInst>(*at)) break;
        block->splitBasicBlock(at);
        at = block->getTerminator()->getIterator();
      }
    }
  }
}

}  // namespace smolvm::emulation::codegen
