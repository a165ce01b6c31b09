// What a kernel needs, found without compiling it: its functions, its memory, and how its threads
// must be run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host-daemon/emulation/ptx/cfg.h"
#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::emulation::codegen {

// Functions that the runtime provides (CUDA's device-side system calls).
enum class Builtin { kNone, kVprintf, kAssertFail, kMalloc, kFree };
Builtin BuiltinNamed(std::string_view name);

inline constexpr uint64_t kNotInFrame = UINT64_MAX;

struct FunctionFacts {
  uint32_t index = ptx::kNoIndex;
  ptx::Cfg cfg;
  // Offsets in the function's frame, of .local variables and those that calls pass (.param), and in
  // the block's shared memory, by index in Function::variables.
  std::vector<uint64_t> local_offsets;
  std::vector<uint64_t> shared_offsets;
  // In the frame too: parameters of a function (not a kernel's) whose address is taken, which is
  // one of local memory (PTX ISA, "mov"); kNotInFrame for the others. By index in Function::params.
  std::vector<uint64_t> param_offsets;
  // Where, behind them, the blocks of a call's results and arguments lie.
  uint64_t call_offset = 0;
  uint64_t local_bytes = 0;  // of .local variables and parameters alone
  uint64_t frame_bytes = 0;
  // Blocks whose end must yield when control goes back: loops that wait for other threads.
  std::vector<bool> block_in_waiting_loop;
};

struct KernelFacts {
  uint32_t kernel = ptx::kNoIndex;
  std::vector<FunctionFacts> functions;   // the kernel first
  std::map<uint32_t, uint32_t> position;  // Module::functions index → index in `functions`
  std::vector<uint32_t> address_taken;    // functions an indirect call may reach
  std::map<uint32_t, uint64_t> shared_variables;  // Module::variables index → offset
  uint64_t static_shared_bytes = 0;
  uint64_t dynamic_shared_offset = 0;  // where extern .shared arrays begin
  uint64_t local_bytes = 0;            // of all functions, each once: what CUDA calls local memory
  uint64_t window_bytes = 0;           // frames of all functions, each once
  // Whether what a thread has running at a time may take more than window_bytes: recursion, calls
  // of pointers, and whatever moves the stack by a number of the program's.
  bool unbounded_stack = false;
  bool needs_fibres = false;
  // Threads wait in the kernel's own code only, so that it can be compiled as a coroutine: a wait
  // is a return, and threads need no stacks of their own.
  bool is_coroutine = false;
  uint64_t instruction_count = 0;

  const FunctionFacts& FactsOf(uint32_t function) const { return functions[position.at(function)]; }
};

// False, with a message, when the kernel calls something that has no body.
bool AnalyseKernel(const ptx::Module& module, uint32_t kernel, KernelFacts* facts,
                   std::string* error);

// Whether the instruction waits for other threads: barriers and warp operations.
bool MeetsOthers(const ptx::Instruction& instruction);

// Every function whose address an instruction or an initialiser takes, in index order: the
// program's table of call targets.
std::vector<uint32_t> AddressTakenFunctions(const ptx::Module& module);

}  // namespace smolvm::emulation::codegen
