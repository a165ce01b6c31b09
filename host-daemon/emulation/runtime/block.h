// One block (CTA) whose threads run as fibres: who is ready, who waits at which barrier or warp
// operation.
//
// A block stays on one OS thread from its first instruction to its last, so nothing here is locked,
// and a fibre runs until it waits, yields or ends. Threads schedule independently: a lane that
// waits never holds up the others of its warp.
//
// Warps take turns, in rounds (docs/decisions/warps-take-turns.md): in each round every warp runs
// its ready lanes to where they wait next, and what that makes ready runs in the next round. So no
// warp passes its next wait before every other has reached its own. Lanes that spin (yield) run
// again when nobody else can, and at the latest after kRoundsOfASpinner rounds.
//
// Threads of most kernels are coroutines, not fibres: "waits" then means that a helper notes it and
// returns, and the generated code returns to RunCoroutines. In Sweep, the common case, all threads
// run in order from one __syncthreads() to the next, and nothing is noted but that.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "host-daemon/emulation/device/kernel_memory.h"
#include "host-daemon/emulation/runtime/context.h"
#include "host-daemon/emulation/runtime/scratch.h"
#include "host-daemon/emulation/runtime/stack_pool.h"

namespace smolvm::emulation {

struct BlockCode;
struct Launch;

inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kMaxWarps =
    32;  // 1024 threads per block (CUDA C++ guide, technical specifications)
inline constexpr uint32_t kBarriers = 16;               // PTX ISA, barrier{.cta}
inline constexpr uint32_t kClusterBarrier = kBarriers;  // barrier.cluster, of the one-block cluster

// After so many rounds lanes that spin run beside lanes that work. Seldom, since each look costs as
// much as a wait, and often 31 warps spin until one has done its work.
inline constexpr uint32_t kRoundsOfASpinner = 64;

enum class WarpOp : uint32_t { kSync, kShuffle, kVote, kMatchAny, kMatchAll, kRedux, kElect };
enum class ShuffleMode : uint32_t { kUp, kDown, kBfly, kIdx };
enum class VoteMode : uint32_t { kAll, kAny, kUni, kBallot };
enum class ReduxOp : uint32_t { kAdd, kMinU, kMaxU, kMinS, kMaxS, kAnd, kOr, kXor };
enum class BarrierRed : uint32_t { kPopc, kAnd, kOr };

struct LaneSlot {
  uint64_t value;   // operand in, result out
  uint32_t aux[2];  // shuffle: b and c; votes and matches: predicate
  uint32_t flag;    // predicate result
  uint32_t site;    // activemask: which instruction
};

struct Warp {
  uint32_t valid = 0;    // lanes that exist
  uint32_t ready = 0;    // have still to run in this round
  uint32_t next = 0;     // run in the next one
  uint32_t yielded = 0;  // ready, but waiting for somebody else's progress
  uint32_t exited = 0;
  uint32_t converging = 0;  // at activemask, until no other lane of the warp can run
  // Warp operations under way: disjoint groups of lanes may each be at one.
  struct Meeting {
    uint32_t mask;
    uint32_t arrived;
    uint32_t kind;  // WarpOp and mode
  };
  uint32_t meeting_count = 0;
  Meeting meetings[kWarpSize];
  LaneSlot lanes[kWarpSize];
};

class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block();

  // Prepares the launch's block number `index`, reusing stacks and memory of earlier ones. False
  // when memory is short. Of code for several lanes a "thread" is a group of so many neighbours in
  // a row, here and in all that follows.
  // kNotNow: other blocks have the memory that there is.
  enum class Room { kYes, kNotNow, kNever };
  Room Provide(Launch& launch, const BlockCode& code);
  bool Start(Launch& launch, uint64_t index, const BlockCode& code);
  // Gives back what is more than little: it may not be needed again for long.
  void Rest();
  // Runs fibres until none is ready; called on the worker's main stack. `main_sp` receives where to
  // return to.
  void Resume(void** main_sp);
  // After Resume: makes those ready that only waited for the others. False when there are none: the
  // block has ended, or waits for something that cannot happen.
  bool Unpark();

  uint64_t index() const { return index_; }
  uint32_t lanes() const { return lanes_; }
  bool finished() const { return live_ == 0; }
  const ThreadContext* running() const { return running_; }
  const Stack* RunningStack() const;
  std::span<const ThreadContext> threads() const { return {threads_.get(), thread_count_}; }

  // From here on: called on fibres, through the helper table.
  void Yield(ThreadContext* self);
  // `count` 0 = every thread of the block.
  void Barrier(ThreadContext* self, uint32_t id, uint32_t count);
  void BarrierArrive(ThreadContext* self, uint32_t id, uint32_t count);
  uint32_t BarrierReduce(ThreadContext* self, uint32_t id, uint32_t count, BarrierRed op,
                         bool predicate);
  // Deposits nothing itself: the caller has filled lane(self). Returns when all lanes of `mask`
  // have come; the result is in the lane's slot.
  void Meet(ThreadContext* self, WarpOp op, uint32_t mode, uint32_t mask);
  LaneSlot& lane(ThreadContext* self) { return warps_[self->warp].lanes[self->lane]; }
  uint32_t ActiveMask(ThreadContext* self, uint32_t site);
  [[noreturn]] void Exit(ThreadContext* self);
  // Coroutines only: the end of a thread, its frame (null when memory is short), the result of a
  // BarrierReduce.
  void Finish(ThreadContext* self);
  void* Frame(ThreadContext* self, size_t bytes);
  uint32_t BarrierResult(ThreadContext* self, BarrierRed op);

 private:
  struct BarrierState {
    uint32_t arrived = 0;
    uint32_t expected = 0;  // 0 = every live thread
    bool reduces = false;
    uint32_t popc = 0;
    uint32_t and_all = 1;
    uint32_t waiting[kMaxWarps] = {};
  };

  static void RunThread(void* argument);
  void* AfterEnd(ThreadContext* self);
  static void RunOnStack(void* block);
  void RunCoroutines();
  void TakeTurn();
  void NoteArrival();
  void Sweep();
  void LeaveSweep(const ThreadContext* self);
  bool MaySweep() const;
  void Continue(ThreadContext* thread);
  // Numbers beyond the last are undefined behaviour (PTX ISA); they must not leave the array.
  BarrierState& BarrierAt(uint32_t id) {
    return barriers_[id <= kClusterBarrier ? id : id % kBarriers];
  }
  // Contexts of threads; one stands for several in code for lanes.
  static uint32_t CountOf(const Launch& launch, const BlockCode& code);
  void PrepareThreads(const Launch& launch, const BlockCode& code);
  // For the next round.
  void SetReady(uint32_t warp, uint32_t lanes) {
    if (lanes == 0) return;
    warps_[warp].next |= lanes;
    next_warps_ |= 1u << warp;
  }
  bool BeginRound();
  void WakeSpinners();
  void LeaveActiveMask(uint32_t warp_index);
  ThreadContext* Next();
  void SwitchAway(ThreadContext* self);
  uint32_t Weight(const ThreadContext* self) const;
  void Arrive(ThreadContext* self, BarrierState& barrier, uint32_t count);
  void CompleteBarrier(BarrierState& barrier);
  void WaitAt(ThreadContext* self, BarrierState& barrier, uint32_t count);
  void FinishMeeting(uint32_t warp_index, uint32_t index);
  void DropFromMeetings(uint32_t warp_index);

  struct FreeFrames {
    void operator()(char* frames) const { ::operator delete[](frames, kFrameAlignment); }
  };
  static constexpr std::align_val_t kFrameAlignment{64};

  BlockContext context_{};
  uint64_t index_ = 0;
  uint32_t lanes_ = 1;
  bool is_coroutine_ = false;
  bool sweeping_ = false;
  bool may_sweep_ = false;  // worth a look: a barrier has just been completed
  std::unique_ptr<char[], FreeFrames> frames_;
  size_t frames_bytes_ = 0;
  size_t frame_stride_ = 0;  // 0 until the grid's first thread has asked
  // Warps with lanes in the mask of that name.
  uint32_t ready_warps_ = 0;
  uint32_t next_warps_ = 0;
  uint32_t yielded_warps_ = 0;
  uint32_t converging_warps_ = 0;
  uint32_t spinners_rounds_ = 0;  // since lanes that spin have run
  uint32_t live_ = 0;
  uint32_t thread_count_ = 0;
  uint32_t warp_count_ = 0;
  ThreadContext* running_ = nullptr;
  void** main_sp_ = nullptr;
  KernelFunction function_ = nullptr;
  uint64_t prepared_for_ = 0;  // the grid whose threads' contexts are filled in
  std::unique_ptr<ThreadContext[]> threads_;
  uint32_t thread_capacity_ = 0;
  std::unique_ptr<Warp[]> warps_;
  BarrierState barriers_[kBarriers + 1];
  uint32_t occupied_barriers_ = 0;  // those where threads have arrived
  std::vector<Stack> stacks_;
  StackPool* stack_pool_ = nullptr;
  ScratchPiece memory_;
  KernelMemoryShare share_, frames_share_;
};

}  // namespace smolvm::emulation
