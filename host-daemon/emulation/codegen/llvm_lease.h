// LLVM, for one thread at a time, and not once the process ends.
//
// Kernels are compiled on threads that run on while exit() destroys globals, LLVM's among them. A
// handler that runs before those are destroyed waits for the compiler and closes it.
#pragma once

#include <mutex>

namespace smolvm::emulation::codegen {

class LlvmLease {
 public:
  LlvmLease();
  // LLVM makes some globals when it first needs them, and they are destroyed before what was
  // registered earlier: the handler is registered again behind them.
  ~LlvmLease();
  // False when the process is ending.
  explicit operator bool() const { return is_valid_; }

 private:
  std::unique_lock<std::mutex> lock_;
  bool is_valid_;
};
}  // namespace smolvm::emulation::codegen
