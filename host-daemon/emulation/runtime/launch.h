// One running grid: what its workers share.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "host-daemon/emulation/runtime/context.h"
#include "host-daemon/emulation/runtime/program.h"
#include "host-daemon/emulation/runtime/scratch.h"
#include "host-daemon/emulation/runtime/vector_tier.h"

namespace smolvm::emulation {

// A compiled kernel, as the scheduler needs to know it.
struct KernelCode {
  std::string name;
  KernelFunction function = nullptr;
  // Whether `function` runs one thread (on a fibre) or all threads of a block.
  bool needs_fibres = false;
  // With needs_fibres: it needs none, but returns at each wait, to be continued by its frame.
  bool is_coroutine = false;
  uint64_t static_shared_bytes = 0;
  // Fixed local memory of a thread; kernels with recursion or indirect calls add the context's
  // stack limit.
  uint64_t local_bytes = 0;
  bool unbounded_stack = false;
  const uintptr_t* variables = nullptr;
  // Null when threads must run one by one.
  std::unique_ptr<VectorTier> vector_tier;
};

// What a block runs, and how many threads of a row at once.
struct BlockCode {
  KernelFunction function = nullptr;
  uint32_t lanes = 1;
};

// Lifetime: on the stack of the thread that launches. Threads: as said at each member.
struct Launch {
  const KernelCode* code = nullptr;
  const LaunchConfig* config = nullptr;
  Arena* arena = nullptr;
  Scratch* scratch = nullptr;
  uintptr_t params = 0;
  uint64_t param_bytes = 0;
  uint64_t block_count = 0;
  uint32_t threads_per_block = 0;
  uint64_t shared_bytes = 0;  // of a block's window
  uint64_t local_bytes = 0;   // of a thread's window
  uint64_t grid_id = 0;
  uintptr_t grid_workspace = 0;
  VectorTier* vector_tier = nullptr;  // null when it does not suit the blocks

  // Whether there may be code for several threads at once that is not made yet.
  bool AwaitsVectorTier() const {
    return vector_tier != nullptr && vector_tier->function() == nullptr;
  }
  // For blocks that begin now.
  BlockCode CurrentCode() const {
    const KernelFunction wide = vector_tier != nullptr ? vector_tier->function() : nullptr;
    return wide != nullptr ? BlockCode{wide, vector_tier->lanes()} : BlockCode{code->function, 1};
  }

  std::atomic<uint64_t> next_block{0};
  // Set once; workers look at it between blocks and whenever a fibre switches to its worker.
  std::atomic<bool> cancelled{false};

  // The first fault wins. Any thread.
  void Fail(CUresult result, const std::string& why);
  CUresult result();

 private:
  std::mutex mutex_;
  CUresult result_ = CUDA_SUCCESS;
};

// Runs a whole grid on the calling thread and the pool. Any thread.
CUresult RunGrid(const KernelCode& code, const LaunchConfig& config, Arena& arena,
                 std::span<const std::byte> params);

}  // namespace smolvm::emulation
