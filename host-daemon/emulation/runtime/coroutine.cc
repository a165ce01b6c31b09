// Blocks whose threads are coroutines: functions that return where they wait.
#include <bit>
#include <new>

#include "host-daemon/emulation/runtime/block.h"
#include "host-daemon/emulation/runtime/fibre.h"

namespace smolvm::emulation {

// Frames lie outside the arena: they hold code addresses, which a kernel must not reach.
void* Block::Frame(ThreadContext* self, size_t bytes) {
  constexpr size_t kMostBytes = 1 << 20;
  if (frame_stride_ == 0) {
    if (bytes > kMostBytes) return nullptr;
    frame_stride_ = (bytes + 63) / 64 * 64;
    const size_t all = frame_stride_ * thread_count_;
    if (all > frames_bytes_) {
      frames_bytes_ = 0;
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

void Block::RunOnStack(void* argument) {
  auto* block = static_cast<Block*>(argument);
  block->RunCoroutines();
  smolvm_fibre_jump(*block->main_sp_);
}

// Starts a thread, or goes on where it returned: a frame begins with the address of the code that
// continues it (LLVM, Coroutines, switched-resume lowering).
void Block::Continue(ThreadContext* thread) {
  running_ = thread;
  if (thread->sp == nullptr) return function_(thread);
  using Code = void (*)(void*);
  (*static_cast<Code*>(thread->sp))(thread->sp);
}

bool Block::MaySweep() const {
  if (live_ != thread_count_ || barriers_[0].arrived != 0) return false;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    if (warps_[w].ready != warps_[w].valid) return false;
  }
  return true;
}

// Runs every thread once. True when all of them have come to barrier 0, which completes it; false
// when one did anything else: then LeaveSweep has noted what the others did.
bool Block::Sweep() {
  sweeping_ = true;
  context_.arrivals = 0;
  for (uint32_t i = 0; i < thread_count_; ++i) {
    Continue(&threads_[i]);
    if (!sweeping_) return false;
  }
  sweeping_ = false;
  context_.arrivals = 0;
  return true;
}

// Called before a thread does anything that others can see: those before it wait at barrier 0,
// those behind it are ready.
void Block::LeaveSweep(const ThreadContext* self) {
  if (!sweeping_) return;
  sweeping_ = false;
  context_.arrivals = 0;
  const auto index = static_cast<uint32_t>(self - threads_.get());
  BarrierState& barrier = barriers_[0];
  barrier.arrived = index;
  barrier.and_all = index == 0;
  ready_warps_ = 0;
  for (uint32_t w = 0; w < warp_count_; ++w) {
    const uint32_t first = w * kWarpSize;
    const uint32_t before = index <= first               ? 0
                            : index - first >= kWarpSize ? ~0u
                                                         : (1u << (index - first)) - 1;
    const uint32_t own = self->warp == w ? 1u << self->lane : 0;
    barrier.waiting[w] = warps_[w].valid & before;
    warps_[w].ready = 0;
    SetReady(w, warps_[w].valid & ~before & ~own);
  }
}

// Until no thread is ready.
void Block::RunCoroutines() {
  for (;;) {
    const bool sweep = may_sweep_ && MaySweep();
    may_sweep_ = false;
    if (sweep) {
      while (Sweep()) {
      }
    } else {
      ThreadContext* next = Next();
      if (next == nullptr) break;
      Continue(next);
    }
    if (context_.arrivals != 0) {
      context_.arrivals = 0;
      Barrier(running_, 0, 0);
    }
  }
  running_ = nullptr;
}

}  // namespace smolvm::emulation
