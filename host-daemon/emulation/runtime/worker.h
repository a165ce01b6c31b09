// An OS thread's part in running grids: takes blocks, runs their threads, notices faults and
// cancellation.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "host-daemon/emulation/runtime/block.h"
#include "host-daemon/emulation/runtime/faults.h"
#include "host-daemon/emulation/runtime/launch.h"
#include "host-daemon/emulation/runtime/pool.h"

namespace smolvm::emulation {

// Lifetime: leased to a thread from its first launch to its end, then to another thread: its memory
// is warm. Threads: its own, except where said.
class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // The calling thread's.
  static Worker& Current();
  // The calling thread's while it runs a kernel, else null. Async-signal-safe.
  static Worker* Running();

  // Takes blocks of the grid until none is left or the launch is cancelled; a helper also leaves
  // for a grid of higher priority.
  WorkPool::Outcome Run(Launch& launch, bool is_helper);

  // Ends the launch from a helper; does not return.
  [[noreturn]] void Raise(FaultKind kind, uint64_t address);

  // In signal handlers.
  void Interrupt(void* ucontext, Fault fault);
  bool InterruptIfCancelled(void* ucontext);
  bool InGuard(uintptr_t address) const;

  // Any thread: interrupts every other worker that is inside `launch`, until none is. The launch is
  // cancelled.
  static void DriveOut(const Launch& launch);
  // Any thread: interrupts every worker that is inside `launch`, once. True when there was one.
  static bool Kick(const Launch& launch);

  // What it runs; where printf may put its text together.
  const Launch* launch() const { return launch_.load(std::memory_order_relaxed); }
  std::string& text() { return text_; }

 private:
  static void RunPlainBlocks(void* self);
  static void RunBlockAgain(void* self);
  void FindFaultingThread();
  void FindFaultingThread(Launch& launch, Block& block);
  bool SpentEnough(Launch& launch, int64_t* since) const;
  void RunPlain(Launch& launch);
  void RunFibres(Launch& launch);
  bool Leaves(const Launch& launch) const;
  bool AddBlock(Launch& launch);
  void RestIdle();
  bool Step(Launch& launch, Block& block);
  void HandleFault(Launch& launch, Block& block);
  void Report(Launch& launch, const ThreadContext& thread, uint32_t lanes);

  ThreadContext thread_{};  // of plain kernels; first, for its alignment
  std::atomic<Launch*> launch_{nullptr};
  std::atomic<int> thread_id_{0};
  volatile bool in_kernel_ = false;
  bool is_helper_ = false;
  bool faulted_ = false;
  bool makes_lanes_ = false;  // has left its blocks to make the vector tier's code
  Fault fault_{};
  void* main_sp_ = nullptr;
  std::string text_;

  // Plain kernels: one stack, one context for all threads (thread_).
  std::vector<Stack> stack_;
  BlockContext block_context_{};
  ScratchPiece memory_;
  KernelMemoryShare share_;  // of memory_
  bool starves_ = false;     // there was no memory for another block
  BlockCode code_;

  // Fibre kernels.
  std::vector<std::unique_ptr<Block>> resident_;
  std::vector<std::unique_ptr<Block>> idle_;
  Block* running_block_ = nullptr;
};

}  // namespace smolvm::emulation
