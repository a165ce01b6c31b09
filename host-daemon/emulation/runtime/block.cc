#include "host-daemon/emulation/runtime/block.h"

#include <bit>

#include "host-daemon/emulation/runtime/fibre.h"
#include "host-daemon/emulation/runtime/helpers.h"
#include "host-daemon/emulation/runtime/launch.h"
#include "host-daemon/emulation/runtime/warp.h"

namespace smolvm::emulation {
namespace {

uint32_t LowLanes(uint32_t count) { return count >= 32 ? ~0u : (1u << count) - 1; }

}  // namespace

Block::~Block() {
  if (stack_pool_ != nullptr) stack_pool_->Put(&stacks_);
}

uint32_t Block::CountOf(const Launch& launch, const BlockCode& code) {
  const uint32_t width = launch.config->block[0];
  return launch.threads_per_block / width * ((width + code.lanes - 1) / code.lanes);
}

Block::Room Block::Provide(Launch& launch, const BlockCode& code) {
  const uint32_t count = CountOf(launch, code);
  const size_t window_bytes = launch.shared_bytes + count * launch.local_bytes;
  const uint64_t bytes = Scratch::ClassOf(window_bytes) + count * sizeof(ThreadContext);
  if (!KernelMemory::Get().Allows(bytes)) return Room::kNever;
  const bool is_coroutine = launch.code->is_coroutine;
  // Coroutines share one stack: they leave nothing on it.
  const size_t stacks = is_coroutine ? 1 : count;
  const size_t stack_bytes =
      is_coroutine
          ? 1 << 20
          : (64 << 10) +
                (launch.code->unbounded_stack ? 4 * launch.config->stack_bytes_per_thread : 0);
  StackPool& pool = StackPool::ForSize(stack_bytes);
  if (stack_pool_ != &pool && stack_pool_ != nullptr) stack_pool_->Put(&stacks_);
  stack_pool_ = &pool;
  if (stacks_.size() < stacks && !pool.Take(stacks - stacks_.size(), &stacks_))
    return Room::kNotNow;
  if (thread_capacity_ < count) {
    threads_ = std::make_unique<ThreadContext[]>(count);
    thread_capacity_ = count;
  }
  if (warps_ == nullptr) warps_ = std::make_unique<Warp[]>(kMaxWarps);
  if (share_.bytes() < bytes && !share_.Resize(bytes)) return Room::kNotNow;
  return memory_.Reserve(*launch.scratch, window_bytes) ? Room::kYes : Room::kNotNow;
}

void Block::Rest() {
  constexpr uint64_t kLittle = 256 << 10;
  if (share_.bytes() > kLittle) {
    memory_.Release();
    share_.Resize(0);
    prepared_for_ = 0;  // threads' contexts name the windows
  }
  constexpr size_t kFewStacks = 64;
  if (stacks_.size() > kFewStacks) stack_pool_->Put(&stacks_);
  if (frames_share_.bytes() > kLittle) {
    frames_.reset();
    frames_bytes_ = 0;
    frames_share_.Resize(0);
    prepared_for_ = 0;
  }
}

bool Block::Start(Launch& launch, uint64_t index, const BlockCode& code) {
  const uint32_t count = CountOf(launch, code);
  index_ = index;
  if (Provide(launch, code) != Room::kYes) return false;
  FillBlockContext(launch, index, memory_.address(), &context_);
  thread_count_ = live_ = count;
  warp_count_ = (count + kWarpSize - 1) / kWarpSize;
  for (BarrierState& barrier : barriers_) {
    if (barrier.arrived != 0 || barrier.expected != 0) barrier = {};
  }
  occupied_barriers_ = 0;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    warp.valid = warp.next = LowLanes(count - w * kWarpSize);
    warp.ready = warp.yielded = warp.exited = warp.converging = warp.meeting_count = 0;
  }
  next_warps_ = LowLanes(warp_count_);
  ready_warps_ = yielded_warps_ = converging_warps_ = spinners_rounds_ = 0;
  is_coroutine_ = launch.code->is_coroutine;
  sweeping_ = false;
  may_sweep_ = true;
  context_.arrived = 0;
  // Blocks of one grid differ in their index only.
  if (prepared_for_ != launch.grid_id || lanes_ != code.lanes) PrepareThreads(launch, code);
  for (uint32_t i = 0; i < count; ++i) {
    threads_[i].local_used = 0;
    threads_[i].sp = nullptr;
  }
  return true;
}

void Block::PrepareThreads(const Launch& launch, const BlockCode& code) {
  const uint32_t* size = launch.config->block;
  uint32_t i = 0;
  for (uint32_t z = 0; z < size[2]; ++z) {
    for (uint32_t y = 0; y < size[1]; ++y) {
      for (uint32_t x = 0; x < size[0]; x += code.lanes, ++i) {
        ThreadContext& thread = threads_[i];
        thread.tid[0] = x;
        thread.tid[1] = y;
        thread.tid[2] = z;
        thread.lane = i % kWarpSize;
        thread.warp = i / kWarpSize;
        thread.block_context = &context_;
        thread.local_base = context_.shared_base + launch.shared_bytes + i * launch.local_bytes;
        thread.spins = kSpinsBeforeYield;
        thread.block = this;
      }
    }
  }
  function_ = code.function;
  lanes_ = code.lanes;
  frame_stride_ = 0;
  prepared_for_ = launch.grid_id;
}

// Opens the next round, which is for all lanes that have become ready in this one. False when there
// are none.
bool Block::BeginRound() {
  for (uint32_t rest = converging_warps_; rest != 0; rest &= rest - 1) {
    const uint32_t w = std::countr_zero(rest);
    if (warps_[w].next == 0 && warps_[w].yielded == 0) LeaveActiveMask(w);
  }
  if (next_warps_ == 0) return false;
  if (yielded_warps_ != 0 && ++spinners_rounds_ == kRoundsOfASpinner) WakeSpinners();
  for (uint32_t rest = next_warps_; rest != 0; rest &= rest - 1) {
    Warp& warp = warps_[std::countr_zero(rest)];
    warp.ready = warp.next;
    warp.next = 0;
  }
  ready_warps_ = next_warps_;
  next_warps_ = 0;
  return true;
}

void Block::WakeSpinners() {
  spinners_rounds_ = 0;
  for (; yielded_warps_ != 0; yielded_warps_ &= yielded_warps_ - 1) {
    const uint32_t w = std::countr_zero(yielded_warps_);
    SetReady(w, warps_[w].yielded);
    warps_[w].yielded = 0;
  }
}

// Lanes of a warp that are at one activemask instruction have converged there.
void Block::LeaveActiveMask(uint32_t warp_index) {
  Warp& warp = warps_[warp_index];
  for (uint32_t rest = warp.converging; rest != 0;) {
    const uint32_t site = warp.lanes[std::countr_zero(rest)].site;
    uint32_t group = 0;
    for (uint32_t lanes = rest; lanes != 0; lanes &= lanes - 1) {
      const uint32_t lane = std::countr_zero(lanes);
      if (warp.lanes[lane].site == site) group |= 1u << lane;
    }
    for (uint32_t lanes = group; lanes != 0; lanes &= lanes - 1) {
      warp.lanes[std::countr_zero(lanes)].value = group;
    }
    rest &= ~group;
  }
  SetReady(warp_index, warp.converging);
  warp.converging = 0;
  converging_warps_ &= ~(1u << warp_index);
}

// The next fibre of this round or, when it is over, of the next. Null when there is none.
ThreadContext* Block::Next() {
  if (ready_warps_ == 0 && !BeginRound()) return nullptr;
  const uint32_t w = std::countr_zero(ready_warps_);
  Warp& warp = warps_[w];
  const uint32_t lane = std::countr_zero(warp.ready);
  warp.ready &= warp.ready - 1;
  if (warp.ready == 0) ready_warps_ &= ready_warps_ - 1;
  ThreadContext* next = &threads_[w * kWarpSize + lane];
  if (next->sp == nullptr) {
    next->sp = MakeFibre(stacks_[next - threads_.get()], &Block::RunThread, next);
  }
  return next;
}

SMOLVM_NOT_INSTRUMENTED void Block::RunThread(void* argument) {
  auto* self = static_cast<ThreadContext*>(argument);
  self->block->function_(self);
  EndFibre(self->block->AfterEnd(self));
}

void Block::Resume(void** main_sp) {
  main_sp_ = main_sp;
  if (is_coroutine_) {
    SwitchFibre(main_sp, MakeFibre(stacks_[0], &Block::RunOnStack, this));
    return;
  }
  ThreadContext* next = Next();
  if (next == nullptr) return;
  running_ = next;
  SwitchFibre(main_sp, next->sp);
}

void Block::SwitchAway(ThreadContext* self) {
  if (is_coroutine_) return;  // its code returns next
  ThreadContext* next = Next();
  if (next == self) return;
  running_ = next;
  SwitchFibre(&self->sp, next != nullptr ? next->sp : *main_sp_);
}

const Stack* Block::RunningStack() const {
  if (running_ == nullptr) return nullptr;
  return &stacks_[is_coroutine_ ? 0 : running_ - threads_.get()];
}

bool Block::Unpark() {
  const bool any = (converging_warps_ | yielded_warps_) != 0;
  while (converging_warps_ != 0) LeaveActiveMask(std::countr_zero(converging_warps_));
  WakeSpinners();
  return any;
}

void Block::Yield(ThreadContext* self) {
  LeaveSweep(self);
  self->spins = kSpinsBeforeYield;
  warps_[self->warp].yielded |= 1u << self->lane;
  yielded_warps_ |= 1u << self->warp;
  SwitchAway(self);
}

uint32_t Block::ActiveMask(ThreadContext* self, uint32_t site) {
  LeaveSweep(self);
  Warp& warp = warps_[self->warp];
  warp.lanes[self->lane].site = site;
  warp.converging |= 1u << self->lane;
  converging_warps_ |= 1u << self->warp;
  SwitchAway(self);
  return static_cast<uint32_t>(warp.lanes[self->lane].value);
}

// Barriers with a count count in whole warps (PTX ISA, barrier{.cta}): the last lane of a partial
// warp stands for the lanes that do not exist.
uint32_t Block::Weight(const ThreadContext* self) const {
  const uint32_t valid = warps_[self->warp].valid;
  if (valid == ~0u || (valid >> self->lane) != 1) return 1;
  return kWarpSize - self->lane;
}

void Block::Arrive(ThreadContext* self, BarrierState& barrier, uint32_t count) {
  barrier.expected = count;
  barrier.arrived += count == 0 ? 1 : Weight(self);
  occupied_barriers_ |= 1u << (&barrier - barriers_);
  CompleteBarrier(barrier);
}

// If all that it waits for have come.
void Block::CompleteBarrier(BarrierState& barrier) {
  const uint32_t expected = barrier.expected == 0 ? live_ : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < expected) return;
  const uint64_t result = barrier.popc | uint64_t{barrier.and_all} << 32;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    // Each lane has the result for itself: others may have completed the barrier's next phase
    // before its turn comes.
    if (barrier.reduces) {
      for (uint32_t lanes = barrier.waiting[w]; lanes != 0; lanes &= lanes - 1)
        warps_[w].lanes[std::countr_zero(lanes)].value = result;
    }
    SetReady(w, barrier.waiting[w]);
    barrier.waiting[w] = 0;
  }
  barrier.arrived = barrier.expected = barrier.popc = 0;
  barrier.and_all = 1;
  barrier.reduces = false;
  occupied_barriers_ &= ~(1u << (&barrier - barriers_));
  may_sweep_ = true;
}

void Block::WaitAt(ThreadContext* self, BarrierState& barrier, uint32_t count) {
  barrier.waiting[self->warp] |= 1u << self->lane;
  Arrive(self, barrier, count);
  SwitchAway(self);
}

void Block::Barrier(ThreadContext* self, uint32_t id, uint32_t count) {
  LeaveSweep(self);
  WaitAt(self, BarrierAt(id), count);
}

void Block::BarrierArrive(ThreadContext* self, uint32_t id, uint32_t count) {
  LeaveSweep(self);
  Arrive(self, BarrierAt(id), count);
}

uint32_t Block::BarrierReduce(ThreadContext* self, uint32_t id, uint32_t count, BarrierRed op,
                              bool predicate) {
  LeaveSweep(self);
  BarrierState& barrier = BarrierAt(id);
  barrier.reduces = true;
  barrier.popc += predicate;
  barrier.and_all &= predicate;
  WaitAt(self, barrier, count);
  return BarrierResult(self, op);
}

uint32_t Block::BarrierResult(ThreadContext* self, BarrierRed op) {
  const uint64_t result = lane(self).value;
  switch (op) {
    case BarrierRed::kPopc:
      return static_cast<uint32_t>(result);
    case BarrierRed::kAnd:
      return static_cast<uint32_t>(result >> 32);
    case BarrierRed::kOr:
      return static_cast<uint32_t>(result) != 0;
  }
  return 0;
}

void Block::Meet(ThreadContext* self, WarpOp op, uint32_t mode, uint32_t mask) {
  LeaveSweep(self);
  Warp& warp = warps_[self->warp];
  const uint32_t bit = 1u << self->lane;
  const uint32_t kind = static_cast<uint32_t>(op) << 8 | mode;
  mask |= bit;  // a thread that is not in its own mask is undefined behaviour (PTX ISA); it must
                // not hang us
  uint32_t i = 0;
  while (i < warp.meeting_count && (warp.meetings[i].mask != mask || warp.meetings[i].kind != kind))
    ++i;
  if (i == warp.meeting_count) warp.meetings[warp.meeting_count++] = {mask, 0, kind};
  Warp::Meeting& meeting = warp.meetings[i];
  meeting.arrived |= bit;
  if (((meeting.arrived | warp.exited | ~warp.valid) & mask) == mask) FinishMeeting(self->warp, i);
  SwitchAway(self);
}

void Block::FinishMeeting(uint32_t warp_index, uint32_t index) {
  Warp& warp = warps_[warp_index];
  const Warp::Meeting meeting = warp.meetings[index];
  warp.meetings[index] = warp.meetings[--warp.meeting_count];
  ComputeWarpOp(static_cast<WarpOp>(meeting.kind >> 8), meeting.kind & 0xff, meeting.arrived,
                warp.lanes);
  SetReady(warp_index, meeting.arrived);
}

// A lane that ended counts as present (PTX ISA: operations wait for the threads of the mask that
// have not exited).
void Block::DropFromMeetings(uint32_t warp_index) {
  Warp& warp = warps_[warp_index];
  for (uint32_t i = 0; i < warp.meeting_count;) {
    const Warp::Meeting& meeting = warp.meetings[i];
    if (((meeting.arrived | warp.exited | ~warp.valid) & meeting.mask) == meeting.mask) {
      FinishMeeting(warp_index, i);
    } else {
      ++i;
    }
  }
}

void Block::Finish(ThreadContext* self) {
  LeaveSweep(self);
  Warp& warp = warps_[self->warp];
  warp.exited |= 1u << self->lane;
  --live_;
  if (warp.meeting_count != 0) DropFromMeetings(self->warp);
  for (uint32_t rest = occupied_barriers_; rest != 0; rest &= rest - 1) {
    BarrierState& barrier = barriers_[std::countr_zero(rest)];
    if (barrier.expected == 0) CompleteBarrier(barrier);
  }
}

// The fibre to go on with when a thread has ended.
void* Block::AfterEnd(ThreadContext* self) {
  Finish(self);
  ThreadContext* next = Next();
  running_ = next;
  return next != nullptr ? next->sp : *main_sp_;
}

void Block::Exit(ThreadContext* self) { JumpToFibre(AfterEnd(self)); }

}  // namespace smolvm::emulation
