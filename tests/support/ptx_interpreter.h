// A small reference interpreter of PTX for tests: the oracle that the kernel compiler is held
// against. It reads the front end's IR, and shares nothing with code generation or the kernel
// runtime.
//
// Covers: integer, floating-point, f16 and bf16 arithmetic, comparisons, conversions, ld, st, atom
// and red in all state spaces, branches, direct and indirect calls, bar.sync, bar.arrive and
// bar.red, shfl, vote, match and redux with .sync, bar.warp.sync. What it does not cover fails by
// name. It is sequential: one block after the other, threads of a block in turns.
//
// Global addresses are addresses in this process; only the buffers that were added and the module's
// own variables may be touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host-daemon/emulation/ptx/ir.h"

namespace smolvm::ptx_interpreter {

struct Launch {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  size_t dynamic_shared_bytes = 0;
  std::vector<std::byte> params;  // packed as Variable::offset says
  uint64_t most_steps = 100'000'000;
};

class Interpreter {
 public:
  // `module` must outlive the interpreter.
  explicit Interpreter(const emulation::ptx::Module& module);

  void AddBuffer(void* base, size_t bytes) { buffers_.emplace_back(base, bytes); }
  // Of a module-scope .global or .const variable; null when there is none of that name.
  std::byte* VariableAddress(std::string_view name) const;

  // Runs a kernel to its end. False: `*error` says which instruction failed and why.
  bool Run(std::string_view kernel, const Launch& launch, std::string* error);

  const emulation::ptx::Module& module() const { return module_; }
  std::byte* variable(uint32_t index) const { return variables_[index].get(); }
  // Whether [address, address + bytes) lies in a buffer or a variable.
  bool MayTouch(uint64_t address, size_t bytes) const;

 private:
  void Initialise(uint32_t index);

  const emulation::ptx::Module& module_;
  std::vector<std::unique_ptr<std::byte[]>> variables_;
  std::vector<std::pair<void*, size_t>> buffers_;
};

}  // namespace smolvm::ptx_interpreter
