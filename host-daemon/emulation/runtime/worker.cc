#include "host-daemon/emulation/runtime/worker.h"

#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "host-daemon/emulation/runtime/code_region.h"
#include "host-daemon/emulation/runtime/fibre.h"
#include "host-daemon/emulation/runtime/helpers.h"
#include "host-daemon/emulation/runtime/launch.h"
#include "host-daemon/emulation/runtime/vector_tier.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

std::mutex g_mutex;
std::vector<Worker*>& AllWorkers() {
  static auto* all = new std::vector<Worker*>;
  return *all;
}
std::vector<Worker*>& FreeWorkers() {
  static auto* free = new std::vector<Worker*>;
  return *free;
}

thread_local Worker* t_running = nullptr;

// Gives the thread a worker and takes it back when the thread ends.
struct Lease {
  Lease() {
    std::lock_guard lock(g_mutex);
    if (FreeWorkers().empty()) {
      worker = new Worker;
      AllWorkers().push_back(worker);
    } else {
      worker = FreeWorkers().back();
      FreeWorkers().pop_back();
    }
  }
  ~Lease() {
    std::lock_guard lock(g_mutex);
    FreeWorkers().push_back(worker);
  }
  SignalStack signal_stack;
  Worker* worker;
};

int64_t Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Workers that hold memory for blocks which run; each gives it back in the end.
std::atomic<int> g_holders{0};

class Holder {
 public:
  ~Holder() { Set(false); }
  void Set(bool holds) {
    if (holds != holds_) g_holders.fetch_add(holds ? 1 : -1);
    holds_ = holds;
  }

 private:
  bool holds_ = false;
};

constexpr int64_t kMostStarved = 500'000'000;  // ns

// Blocks that one worker may hold at once, when all of them wait for other blocks.
constexpr size_t kMaxResident = 4096;

}  // namespace

Worker& Worker::Current() {
  thread_local Lease lease;
  return *lease.worker;
}

Worker* Worker::Running() { return t_running; }

WorkPool::Outcome Worker::Run(Launch& launch, bool is_helper) {
  thread_id_.store(static_cast<int>(syscall(SYS_gettid)), std::memory_order_relaxed);
  launch_.store(&launch);
  faulted_ = false;
  is_helper_ = is_helper;
  in_kernel_ = true;
  t_running = this;
  if (launch.code->needs_fibres) {
    RunFibres(launch);
  } else {
    RunPlain(launch);
  }
  t_running = nullptr;
  in_kernel_ = false;
  launch_.store(nullptr);
  if (launch.cancelled.load()) DriveOut(launch);
  const bool is_done = launch.cancelled.load() || launch.next_block.load() >= launch.block_count;
  return is_done ? WorkPool::Outcome::kDone : WorkPool::Outcome::kLeft;
}

bool Worker::Leaves(const Launch& launch) const {
  return is_helper_ && WorkPool::Get().Outranked(launch.config->priority);
}

// Whether the time since *since, spent in the kernel's first code, makes it worth to compile its
// second.
bool Worker::SpentEnough(Launch& launch, int64_t* since) const {
  const int64_t before = *since;
  *since = Now();
  return launch.vector_tier->Spend(*since - before);
}

void Worker::RunPlainBlocks(void* argument) {
  auto* self = static_cast<Worker*>(argument);
  Launch& launch = *self->launch_.load(std::memory_order_relaxed);
  const uint64_t count = launch.block_count;
  // Several blocks at a time, but never so many that the last worker runs alone for long.
  const uint64_t chunk = std::clamp<uint64_t>(count / 256, 1, 64);
  int64_t since = launch.AwaitsVectorTier() ? Now() : 0;
  while (!launch.cancelled.load(std::memory_order_relaxed) && !self->Leaves(launch)) {
    self->code_ = launch.CurrentCode();
    const uint64_t begin = launch.next_block.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= count) break;
    const uint64_t end = std::min(begin + chunk, count);
    for (uint64_t i = begin; i < end && !launch.cancelled.load(std::memory_order_relaxed); ++i) {
      SetBlockIndex(launch, i, &self->block_context_);
      self->code_.function(&self->thread_);
    }
    self->makes_lanes_ = launch.AwaitsVectorTier() && self->SpentEnough(launch, &since);
    if (self->makes_lanes_) break;
  }
  JumpToFibre(self->main_sp_);
}

void Worker::RunBlockAgain(void* argument) {
  auto* self = static_cast<Worker*>(argument);
  self->launch_.load(std::memory_order_relaxed)->code->function(&self->thread_);
  JumpToFibre(self->main_sp_);
}

// After a memory fault of one of several lanes: the block again, thread by thread. What it has
// written already does not matter any more, since the fault ends the context. Should it change so
// much that no thread faults, the first of the lanes stands for them.
void Worker::FindFaultingThread() {
  const ThreadContext first = thread_;
  const Fault fault = fault_;
  faulted_ = false;
  code_.lanes = 1;
  SwitchFibre(&main_sp_, MakeFibre(stack_[0], &RunBlockAgain, this));
  if (faulted_) return;
  faulted_ = true;
  thread_ = first;
  fault_ = fault;
}

// The same where threads wait for each other.
void Worker::FindFaultingThread(Launch& launch, Block& block) {
  const ThreadContext first = *block.running();
  const Fault fault = fault_;
  faulted_ = false;
  if (block.Start(launch, block.index(), {launch.code->function, 1})) {
    do {
      block.Resume(&main_sp_);
    } while (!faulted_ && !block.finished() && block.Unpark());
  }
  if (faulted_) return Report(launch, *block.running(), 1);
  fault_ = fault;
  Report(launch, first, 1);
}

void Worker::RunPlain(Launch& launch) {
  constexpr size_t kStackBytes = 1 << 20;
  if ((stack_.empty() && !StackPool::ForSize(kStackBytes).Take(1, &stack_)) ||
      !share_.Resize(Scratch::ClassOf(launch.shared_bytes + launch.local_bytes)) ||
      !memory_.Reserve(*launch.scratch, launch.shared_bytes + launch.local_bytes)) {
    launch.Fail(CUDA_ERROR_OUT_OF_MEMORY, "no memory for a block");
    return;
  }
  FillBlockContext(launch, 0, memory_.address(), &block_context_);
  thread_ = {};
  thread_.block_context = &block_context_;
  thread_.local_base = block_context_.shared_base + launch.shared_bytes;
  thread_.spins = kSpinsBeforeYield;
  do {
    makes_lanes_ = false;
    SwitchFibre(&main_sp_, MakeFibre(stack_[0], &RunPlainBlocks, this));
    if (makes_lanes_) launch.vector_tier->Make();
  } while (makes_lanes_);
  if (!faulted_) return;
  if (code_.lanes != 1 && fault_.kind == FaultKind::kIllegalAddress && !fault_.is_exact)
    FindFaultingThread();
  Report(launch, thread_, code_.lanes);
}

bool Worker::AddBlock(Launch& launch) {
  starves_ = false;
  if (launch.next_block.load(std::memory_order_relaxed) >= launch.block_count) return false;
  if (idle_.empty()) idle_.push_back(std::make_unique<Block>());
  // Memory first: a block that was taken must be run.
  const BlockCode code = launch.CurrentCode();
  const Block::Room room = idle_.back()->Provide(launch, code);
  if (room == Block::Room::kNever)
    launch.Fail(CUDA_ERROR_OUT_OF_MEMORY, "a block's threads take more memory than kernels may");
  starves_ = room == Block::Room::kNotNow;
  if (room != Block::Room::kYes) return false;
  const uint64_t index = launch.next_block.fetch_add(1, std::memory_order_relaxed);
  if (index >= launch.block_count) return false;
  if (!idle_.back()->Start(launch, index, code)) {
    launch.Fail(CUDA_ERROR_OUT_OF_MEMORY, "no memory for a block's threads");
    return false;
  }
  resident_.push_back(std::move(idle_.back()));
  idle_.pop_back();
  return true;
}

// Runs a block until it ends or waits for another block. True when it made no progress but may yet.
bool Worker::Step(Launch& launch, Block& block) {
  running_block_ = &block;
  block.Resume(&main_sp_);
  if (faulted_) {
    HandleFault(launch, block);
    return false;
  }
  running_block_ = nullptr;
  if (block.finished()) return false;
  if (block.Unpark()) return true;
  launch.Fail(CUDA_ERROR_LAUNCH_FAILED, std::string(NameOf(FaultKind::kDeadlock)));
  return false;
}

void Worker::RunFibres(Launch& launch) {
  // Waiting blocks make room for others soon in a cooperative launch, where that is the rule;
  // elsewhere late, so that blocks keep to index order.
  const unsigned patience = launch.config->cooperative ? 1 : 64;
  unsigned idle_passes = 0;
  Holder holder;
  int64_t starved_since = 0;
  int64_t since = launch.AwaitsVectorTier() ? Now() : 0;
  while (!launch.cancelled.load(std::memory_order_relaxed)) {
    if (launch.AwaitsVectorTier() && SpentEnough(launch, &since)) launch.vector_tier->Make();
    if (resident_.empty() && (Leaves(launch) || !AddBlock(launch))) {
      // Others give their memory back when they are done; a helper need not wait for that.
      if (!starves_ || is_helper_) break;
      RestIdle();
      holder.Set(false);
      // Nobody has any for so long that nobody will give some back.
      if (g_holders.load() != 0) starved_since = 0;
      if (starved_since == 0) starved_since = Now();
      if (Now() - starved_since > kMostStarved)
        launch.Fail(CUDA_ERROR_OUT_OF_MEMORY, "no memory for a block's threads");
      sched_yield();
      continue;
    }
    holder.Set(true);
    starved_since = 0;
    bool all_waited = true;
    for (size_t i = 0; i < resident_.size() && !launch.cancelled.load(std::memory_order_relaxed);) {
      if (Step(launch, *resident_[i])) {
        ++i;
        continue;
      }
      all_waited = false;
      idle_.push_back(std::move(resident_[i]));
      resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    idle_passes = all_waited ? idle_passes + 1 : 0;
    if (idle_passes < patience) continue;
    idle_passes = 0;
    if (resident_.size() >= kMaxResident || !AddBlock(launch)) sched_yield();
  }
  for (auto& block : resident_) idle_.push_back(std::move(block));
  resident_.clear();
  RestIdle();
}

void Worker::RestIdle() {
  constexpr size_t kMostIdle = 64;
  if (idle_.size() > kMostIdle) idle_.resize(kMostIdle);
  for (const auto& block : idle_) block->Rest();
}

void Worker::HandleFault(Launch& launch, Block& block) {
  if (const ThreadContext* thread = block.running(); thread != nullptr) {
    const bool is_exact = block.lanes() == 1 || fault_.is_exact;
    if (is_exact || fault_.kind != FaultKind::kIllegalAddress) {
      Report(launch, *thread, block.lanes());
    } else {
      FindFaultingThread(launch, block);
    }
  }
  running_block_ = nullptr;
}

void Worker::Report(Launch& launch, const ThreadContext& thread, uint32_t lanes) {
  faulted_ = false;
  if (launch.cancelled.load()) return;
  const BlockContext& block = *thread.block_context;
  const uint32_t x = thread.tid[0] + (lanes != 1 && fault_.is_exact ? thread.lane_at : 0);
  launch.Fail(ResultOf(fault_.kind),
              fmt::format("\"{}\" block={},{},{} thread={},{},{} address=0x{:x}",
                          NameOf(fault_.kind), block.ctaid[0], block.ctaid[1], block.ctaid[2], x,
                          thread.tid[1], thread.tid[2], fault_.address));
}

void Worker::Raise(FaultKind kind, uint64_t address) {
  fault_ = {kind, address, true};
  faulted_ = true;
  JumpToFibre(main_sp_);
}

void Worker::Interrupt(void* ucontext, Fault fault) {
  fault_ = fault;
  faulted_ = true;
  RedirectToFibre(ucontext, main_sp_);
}

bool Worker::InterruptIfCancelled(void* ucontext) {
  const Launch* launch = launch_.load(std::memory_order_relaxed);
  if (!in_kernel_ || launch == nullptr || !launch->cancelled.load()) return false;
  // Only generated code holds no lock and owns nothing.
  if (CodeRegion::Holds(InterruptedAddress(ucontext)))
    Interrupt(ucontext, {FaultKind::kTimeout, 0});
  return true;
}

bool Worker::InGuard(uintptr_t address) const {
  const Stack* stack = running_block_ != nullptr ? running_block_->RunningStack() : stack_.data();
  if (stack == nullptr) return false;
  const auto guard = reinterpret_cast<uintptr_t>(stack->guard);
  return address - guard < StackPool::kGuardBytes;
}

bool Worker::Kick(const Launch& launch) {
  std::lock_guard lock(g_mutex);
  bool any = false;
  for (const Worker* worker : AllWorkers()) {
    if (worker->launch_.load() != &launch) continue;
    any = true;
    syscall(SYS_tgkill, getpid(), worker->thread_id_.load(), kKickSignal);
  }
  return any;
}

void Worker::DriveOut(const Launch& launch) {
  const timespec pause{0, 1000000};
  while (Kick(launch)) nanosleep(&pause, nullptr);
}

}  // namespace smolvm::emulation
