// What generated code and the runtime know of each other: plain structures at fixed offsets,
// nothing else.
//
// A kernel is compiled into one function `void kernel(ThreadContext*)`. Without barriers, warp
// operations or loops that wait it runs every thread of the block in a loop of its own. Otherwise
// it runs one thread: as a coroutine that returns where the thread waits, or, when functions that
// it calls wait, on a fibre. The vector tier's code runs several neighbours in a row of the block
// in the place of one thread; tid is then the first one's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smolvm::emulation {

class Block;

// Of a grid's workspace, which cooperative groups know as its size and a barrier word
// (cooperative_groups/details/driver_abi.h).
inline constexpr uint32_t kGridWorkspaceBytes = 64;

// What all threads of a block share. Read by generated code as invariant.
struct BlockContext {
  uint32_t ctaid[3];
  uint32_t ntid[3];
  uint32_t nctaid[3];
  uint32_t dynamic_shared_bytes;
  uintptr_t shared_base;  // generic address of the shared window
  uint64_t shared_bytes;  // of the window; shared addresses are offsets in it
  uint64_t local_bytes;   // of each thread's local window
  uintptr_t params;       // generic address of the packed parameter block
  uint64_t param_bytes;
  const uintptr_t* variables;  // addresses of the module's variables, by index
  void* const* helpers;        // the table of helpers.h
  uint64_t grid_id;
  uint64_t grid_workspace;  // what %envreg1 and 2 hold: {u32 size, u32 barrier}, zero at launch
  // Coroutines note here that they have come to barrier 0 (__syncthreads); see Block::Sweep.
  uint32_t arrived;
};

// One cache line: a barrier touches every thread's.
struct alignas(64) ThreadContext {
  uint32_t tid[3];
  uint32_t lane;
  const BlockContext* block_context;
  uintptr_t local_base;  // generic address of this thread's local window
  uint64_t local_used;   // bytes of it taken by the functions that are running
  uint32_t warp;
  union {
    uint32_t spins;    // counts down to the next yield of a loop that waits
    uint32_t lane_at;  // of code for several threads: which of them, counted from tid, may fault
  };
  // The rest belongs to the scheduler.
  void* sp;  // of a fibre; a coroutine's frame
  Block* block;
};

static_assert(sizeof(ThreadContext) == 64);

using KernelFunction = void (*)(ThreadContext*);

// Of a coroutine's frame, which holds vectors when it stands for several threads.
constexpr size_t FrameAlignment(uint32_t lanes) { return lanes == 1 ? 16 : 64; }

// Faults that generated code reports; the CUresult of each is in faults.h.
enum class FaultKind : uint32_t {
  kIllegalAddress,
  kMisaligned,
  kTrap,
  kIllegalCall,
  kStackOverflow,
  kAssert,
  kTimeout,
  kDeadlock,
  kIllegalInstruction,
};

}  // namespace smolvm::emulation
