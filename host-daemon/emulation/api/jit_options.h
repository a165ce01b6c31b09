// CU_JIT_* options, and the buffers that the compiler's log goes to.
#pragma once

#include <cuda.h>

#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {

class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for an unknown option or a missing array. Options that tune a GPU
  // compiler's code have no effect here, as CUDA allows; those that change results
  // (CU_JIT_GLOBAL_SYMBOL_*, CU_JIT_FTZ …) are refused with CUDA_ERROR_NOT_SUPPORTED unless they
  // ask for what is done anyway.
  CUresult Parse(unsigned count, const CUjit_option* options, void** values);

  const LoadOptions& load() const { return load_; }
  // Fills the program's buffers and writes back the sizes and the time.
  void Report(const JitLog& log, float milliseconds) const;
  // The same options without the program's buffers, for a load after its call has returned.
  JitOptions WithoutBuffers() const;

 private:
  struct Buffer {
    char* text = nullptr;
    size_t bytes = 0;
    void** filled = nullptr;  // where the number of bytes written goes
  };
  CUresult ParseOne(CUjit_option option, void** value);
  static void Fill(const Buffer& buffer, const std::string& text);

  LoadOptions load_;
  Buffer info_;
  Buffer error_;
  void** wall_time_ = nullptr;
};

}  // namespace smolvm::emulation
