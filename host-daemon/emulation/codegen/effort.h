// How much the compiler may do for a kernel: LLVM's passes are not linear in what a guest can send.
#pragma once

#include <cstdint>
#include <string>

#include "host-daemon/emulation/codegen/analysis.h"

namespace llvm {
class Module;
}

namespace smolvm::emulation::codegen {

enum class Effort {
  kFull,   // the passes and the code generator of compile.cc
  kPlain,  // without the passes over loops, to which each check of an address is a way out
  kQuick,  // no passes, and a code generator that is linear: slower code, for what is very large
};

// By the size of the IR as emitted; SMOLVM_CUDA_EMULATION_EFFORT (full, plain, quick) decides
// otherwise, for tests and measurements.
Effort EffortFor(const llvm::Module& module);
// That variable, or "": what objects depend on.
std::string EffortSetting();

// What compiling would take about: "" when that is not more than `limit_ms` (0: no limit), else why
// the kernel is refused. Before anything is emitted, and with the IR.
std::string TooMuchToEmit(const KernelFacts& facts, uint64_t limit_ms);
std::string TooMuchToCompile(const llvm::Module& module, uint64_t limit_ms);

// Cuts long basic blocks into pieces: what selects instructions is not linear in a block's length.
void CutLongBlocks(llvm::Module& module);

}  // namespace smolvm::emulation::codegen
