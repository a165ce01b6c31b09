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

bool Block::Provide(Launch& launch, uint32_t count) {
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
  if (stacks_.size() < stacks && !pool.Take(stacks - stacks_.size(), &stacks_)) return false;
  if (thread_capacity_ < count) {
    threads_ = std::make_unique<ThreadContext[]>(count);
    thread_capacity_ = count;
  }
  if (warps_ == nullptr) warps_ = std::make_unique<Warp[]>(kMaxWarps);
  return memory_.Reserve(*launch.scratch, launch.shared_bytes + count * launch.local_bytes);
}

bool Block::Start(Launch& launch, uint64_t index, const BlockCode& code) {
  const uint32_t width = launch.config->block[0];
  const uint32_t count = launch.threads_per_block / width * ((width + code.lanes - 1) / code.lanes);
  index_ = index;
  if (!Provide(launch, count)) return false;
  FillBlockContext(launch, index, memory_.address(), &context_);
  thread_count_ = live_ = count;
  warp_count_ = (count + kWarpSize - 1) / kWarpSize;
  for (BarrierState& barrier : barriers_) {
    if (barrier.arrived != 0 || barrier.expected != 0) barrier = {};
  }
  occupied_barriers_ = 0;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    warp.valid = warp.ready = LowLanes(count - w * kWarpSize);
    warp.yielded = warp.exited = warp.converging = warp.meeting_count = 0;
  }
  ready_warps_ = LowLanes(warp_count_);
  current_warp_ = 0;
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

// The next ready thread, from the current warp first: its lanes share cache lines. Null when there
// is none.
ThreadContext* Block::Next() {
  if (ready_warps_ == 0) return nullptr;
  if (warps_[current_warp_].ready == 0) {
    const uint32_t later = ready_warps_ & ~LowLanes(current_warp_);
    current_warp_ = std::countr_zero(later != 0 ? later : ready_warps_);
  }
  Warp& warp = warps_[current_warp_];
  const uint32_t lane = std::countr_zero(warp.ready);
  warp.ready &= warp.ready - 1;
  if (warp.ready == 0) ready_warps_ &= ~(1u << current_warp_);
  ThreadContext* next = &threads_[current_warp_ * kWarpSize + lane];
  if (next->sp == nullptr && !is_coroutine_) {
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
  bool any = false;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    Warp& warp = warps_[w];
    // Lanes at one activemask instruction when nobody else can run have converged there.
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
    const uint32_t lanes = warp.converging | warp.yielded;
    any = any || lanes != 0;
    warp.converging = warp.yielded = 0;
    SetReady(w, lanes);
  }
  return any;
}

void Block::Yield(ThreadContext* self) {
  LeaveSweep(self);
  self->spins = kSpinsBeforeYield;
  warps_[self->warp].yielded |= 1u << self->lane;
  SwitchAway(self);
}

uint32_t Block::ActiveMask(ThreadContext* self, uint32_t site) {
  LeaveSweep(self);
  Warp& warp = warps_[self->warp];
  warp.lanes[self->lane].site = site;
  warp.converging |= 1u << self->lane;
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

bool Block::Arrive(ThreadContext* self, BarrierState& barrier, uint32_t count, bool predicate) {
  LeaveSweep(self);
  barrier.expected = count;
  barrier.arrived += count == 0 ? 1 : Weight(self);
  occupied_barriers_ |= 1u << (&barrier - barriers_);
  barrier.popc += predicate;
  barrier.and_all &= predicate;
  return CompleteBarrier(barrier);
}

bool Block::CompleteBarrier(BarrierState& barrier) {
  const uint32_t expected = barrier.expected == 0 ? live_ : barrier.expected;
  if (barrier.arrived == 0 || barrier.arrived < expected) return false;
  barrier.result = barrier.popc;
  barrier.result_and = barrier.and_all;
  barrier.arrived = barrier.expected = barrier.popc = 0;
  occupied_barriers_ &= ~(1u << (&barrier - barriers_));
  barrier.and_all = 1;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    SetReady(w, barrier.waiting[w]);
    barrier.waiting[w] = 0;
  }
  may_sweep_ = true;
  return true;
}

void Block::WaitAt(ThreadContext* self, BarrierState& barrier) {
  barrier.waiting[self->warp] |= 1u << self->lane;
  SwitchAway(self);
}

void Block::Barrier(ThreadContext* self, uint32_t id, uint32_t count) {
  BarrierState& barrier = BarrierAt(id);
  if (!Arrive(self, barrier, count, false)) return WaitAt(self, barrier);
  if (is_coroutine_) SetReady(self->warp, 1u << self->lane);
}

void Block::BarrierArrive(ThreadContext* self, uint32_t id, uint32_t count) {
  Arrive(self, BarrierAt(id), count, false);
}

uint32_t Block::BarrierReduce(ThreadContext* self, uint32_t id, uint32_t count, BarrierRed op,
                              bool predicate) {
  BarrierState& barrier = BarrierAt(id);
  if (!Arrive(self, barrier, count, predicate)) {
    WaitAt(self, barrier);
  } else if (is_coroutine_) {
    SetReady(self->warp, 1u << self->lane);
  }
  // Nobody can complete the next phase before every waiting thread has read this result: each of
  // them has to arrive again first.
  return ResultOf(barrier, op);
}

uint32_t Block::ResultOf(const BarrierState& barrier, BarrierRed op) {
  switch (op) {
    case BarrierRed::kPopc:
      return barrier.result;
    case BarrierRed::kAnd:
      return barrier.result_and;
    case BarrierRed::kOr:
      return barrier.result != 0;
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
  if (((meeting.arrived | warp.exited | ~warp.valid) & mask) != mask) return SwitchAway(self);
  const uint32_t others = meeting.arrived & (is_coroutine_ ? ~0u : ~bit);
  FinishMeeting(warp, i);
  SetReady(self->warp, others);
}

void Block::FinishMeeting(Warp& warp, uint32_t index) {
  const Warp::Meeting meeting = warp.meetings[index];
  warp.meetings[index] = warp.meetings[--warp.meeting_count];
  ComputeWarpOp(static_cast<WarpOp>(meeting.kind >> 8), meeting.kind & 0xff, meeting.arrived,
                warp.lanes);
}

// A lane that ended counts as present (PTX ISA: operations wait for the threads of the mask that
// have not exited).
void Block::DropFromMeetings(uint32_t warp_index) {
  Warp& warp = warps_[warp_index];
  for (uint32_t i = 0; i < warp.meeting_count;) {
    const Warp::Meeting meeting = warp.meetings[i];
    if (((meeting.arrived | warp.exited | ~warp.valid) & meeting.mask) != meeting.mask) {
      ++i;
      continue;
    }
    FinishMeeting(warp, i);
    SetReady(warp_index, meeting.arrived);
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
