// PTX to native code: one kernel, with everything it calls, becomes one object file in memory.
//
// The object refers to nothing in this process (see runtime/helpers.h), so it may be kept on disk
// and loaded by another process with an arena of the same size on the same kind of CPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host-daemon/emulation/codegen/analysis.h"
#include "host-daemon/emulation/ptx/ir.h"
#include "host-daemon/emulation/runtime/context.h"

namespace smolvm::emulation::codegen {

struct CompileOptions {
  uint64_t device_bytes = 0;  // of device memory, from kArenaBase on
  int compute_capability = 90;
  // How many threads run at once, of one row of the block (x): 1, or LanesOfHost().
  unsigned lanes = 1;
  // What compiling may take about, by the kernel's size; 0: as long as it takes. LLVM cannot be
  // interrupted.
  uint64_t limit_ms = 0;
};

// As many threads as the machine's vectors have 32-bit elements: 16 with AVX-512, 8 with AVX2 and
// FMA; 1 when it has neither.
unsigned LanesOfHost();

struct CompiledKernel {
  std::string object;  // an ELF relocatable file that defines kKernelSymbol
};
inline constexpr const char* kKernelSymbol = "smolvm_kernel";

// Function pointers are not code addresses in a kernel: they are handles, so that a kernel can jump
// only to functions of its own module with the signature it names. A handle is outside the arena,
// so that using it as an address faults.
inline constexpr uint64_t kFunctionHandleBase = 0x0f00'0000'0000;
inline constexpr uint64_t kFunctionHandleStride = 16;

// Whether Compile() takes options with several lanes for the kernel.
bool CanRunInLanes(const ptx::Module& module, const KernelFacts& facts);

// False, with a message such as "unsupported PTX instruction `tex.2d.v4.f32.f32` (line 12)".
// Threads: any; compiles one at a time.
bool Compile(const ptx::Module& module, const KernelFacts& facts, const CompileOptions& options,
             CompiledKernel* compiled, std::string* error);

// Why nothing is compiled any more once exit() has begun.
inline constexpr const char* kProcessEnds = "the process is ending";

// Whether an instruction is translated, in at least one of its forms: for docs/ptx.md.
bool IsTranslated(ptx::Opcode opcode);

// False, with a message, when a kernel can reach an instruction that is not. What Compile() says of
// forms of instructions is known only then.
bool HasTranslation(const ptx::Module& module, const KernelFacts& facts, std::string* error);

// "unsupported PTX instruction `tex.2d.v4.f32.f32` (line 12)"
std::string Unsupported(const ptx::Instruction& instruction);

// What objects depend on besides their source: the emitter's revision, LLVM's version, the CPU and
// its features.
std::string TargetDescription();

// Code in memory, ready to run.
//
// Lifetime: owns its pages. Threads: any.
class LoadedCode {
 public:
  // Null, with a message, when the object cannot be loaded.
  static LoadedCode* Load(const std::string& object, std::string* error);
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  KernelFunction function() const { return function_; }

 private:
  LoadedCode() = default;
  struct Pages;
  Pages* pages_ = nullptr;
  KernelFunction function_ = nullptr;
};

}  // namespace smolvm::emulation::codegen
