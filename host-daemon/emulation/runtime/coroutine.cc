// Blocks whose threads are coroutines: functions that return where they wait.
#include <bit>
#include <new>

#include "host-daemon/emulation/runtime/block.h"
#include "host-daemon/emulation/runtime/fibre.h"

namespace smolvm::emulation {
namespace {

// A frame begins with the address of the code that continues it (LLVM, Coroutines, switched-resume
// lowering). That code is fastcc, which for one pointer and no result is the C convention on
// x86-64 and AArch64.
void ContinueFrame(void* frame) {
  using Code = void (*)(void*);
  (*static_cast<Code*>(frame))(frame);
}

}  // namespace

// Frames lie outside the arena: they hold code addresses, which a kernel must not reach.
void* Block::Frame(ThreadContext* self, size_t bytes) {
  constexpr size_t kMostBytes = 1 << 20;
  if (frame_stride_ == 0) {
    if (bytes > kMostBytes) return nullptr;
    // Close together: at a barrier all of them are touched, and should fit the first-level cache.
    const size_t unit = FrameAlignment(lanes_);
    frame_stride_ = (bytes + unit - 1) / unit * unit;
    const size_t all = frame_stride_ * thread_count_;
    if (all > frames_bytes_) {
      frames_bytes_ = 0;
      frames_.reset();
      if (!frames_share_.Resize(all)) {
        frame_stride_ = 0;
        return nullptr;
      }
      frames_.reset(static_cast<char*>(::operator new[](all, kFrameAlignment, std::nothrow)));
      if (frames_ == nullptr) {
        frame_stride_ = 0;
        return nullptr;
      }
      frames_bytes_ = all;
    }
  }
  return self->sp = frames_.get() + frame_stride_ * static_cast<size_t>(self - threads_.get());
}

SMOLVM_NOT_INSTRUMENTED void Block::RunOnStack(void* argument) {
  auto* block = static_cast<Block*>(argument);
  block->RunCoroutines();
  EndFibre(*block->main_sp_);
}

// Starts a thread, or goes on where it returned.
void Block::Continue(ThreadContext* thread) {
  running_ = thread;
  if (thread->sp == nullptr) return function_(thread);
  ContinueFrame(thread->sp);
}

bool Block::MaySweep() const {
  if (live_ != thread_count_ || barriers_[0].arrived != 0) return false;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    if (warps_[w].ready != warps_[w].valid) return false;
  }
  return true;
}

// Runs every thread, in order, from one barrier 0 to the next, again and again. Ends when a thread
// does anything else: then LeaveSweep has noted what the others did.
void Block::Sweep() {
  sweeping_ = true;
  for (uint32_t i = 0; i < thread_count_; ++i) {
    Continue(&threads_[i]);
    if (!sweeping_) return;
  }
  // Now all have frames, and their contexts need not be looked at.
  ThreadContext* const end = threads_.get() + thread_count_;
  for (;;) {
    char* frame = frames_.get();
    for (ThreadContext* thread = threads_.get(); thread != end; ++thread) {
      running_ = thread;
      ContinueFrame(frame);
      if (!sweeping_) return;
      frame += frame_stride_;
    }
  }
}

// Called before a thread does anything that others can see: those before it wait at barrier 0,
// those behind it are ready.
void Block::LeaveSweep(const ThreadContext* self) {
  if (!sweeping_) return;
  sweeping_ = false;
  context_.arrived = 0;
  const auto index = static_cast<uint32_t>(self - threads_.get());
  BarrierState& barrier = barriers_[0];
  barrier.arrived = index;
  if (index != 0) occupied_barriers_ |= 1;
  ready_warps_ = 0;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    const uint32_t first = w * kWarpSize;
    const uint32_t before = index <= first               ? 0
                            : index - first >= kWarpSize ? ~0u
                                                         : (1u << (index - first)) - 1;
    const uint32_t own = self->warp == w ? 1u << self->lane : 0;
    barrier.waiting[w] = warps_[w].valid & before;
    warps_[w].ready = warps_[w].valid & ~before & ~own;
    if (warps_[w].ready != 0) ready_warps_ |= 1u << w;
  }
}

// The turn of the next warp: each of its ready lanes, to where it waits next.
void Block::TakeTurn() {
  const uint32_t w = std::countr_zero(ready_warps_);
  ready_warps_ &= ready_warps_ - 1;
  uint32_t lanes = warps_[w].ready;
  warps_[w].ready = 0;
  ThreadContext* const first = &threads_[w * kWarpSize];
  for (; lanes != 0; lanes &= lanes - 1) {
    Continue(first + std::countr_zero(lanes));
    NoteArrival();
  }
}

// The thread that ran may have come to barrier 0.
void Block::NoteArrival() {
  if (context_.arrived == 0) return;
  context_.arrived = 0;
  Barrier(running_, 0, 0);
}

// Until no thread is ready.
void Block::RunCoroutines() {
  for (;;) {
    if (ready_warps_ != 0) {
      TakeTurn();
      continue;
    }
    if (!BeginRound()) break;
    const bool sweep = may_sweep_ && MaySweep();
    may_sweep_ = false;
    if (sweep) {
      Sweep();
      NoteArrival();
    }
  }
  running_ = nullptr;
}

}  // namespace smolvm::emulation
