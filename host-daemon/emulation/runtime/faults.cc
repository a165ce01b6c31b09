#include "host-daemon/emulation/runtime/faults.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "host-daemon/emulation/runtime/code_region.h"
#include "host-daemon/emulation/runtime/fibre.h"
#include "host-daemon/emulation/runtime/worker.h"

namespace smolvm::emulation {
namespace {

std::atomic<uintptr_t> g_arena_base{0};
std::atomic<size_t> g_arena_bytes{0};

struct Previous {
  int signal;
  struct sigaction action;
};
Previous g_previous[] = {{SIGSEGV, {}}, {SIGBUS, {}}, {kKickSignal, {}}};

void Chain(int signal, siginfo_t* info, void* context) {
  for (const Previous& previous : g_previous) {
    if (previous.signal != signal) continue;
    const struct sigaction& action = previous.action;
    if (action.sa_flags & SA_SIGINFO) return action.sa_sigaction(signal, info, context);
    if (action.sa_handler == SIG_IGN) return;
    if (action.sa_handler != SIG_DFL) return action.sa_handler(signal);
    if (signal == kKickSignal) return;  // ignored by default
    // The default: restore it and let the instruction fault again.
    ::signal(signal, SIG_DFL);
    if (info->si_code <= 0) raise(signal);  // sent by a process: would not come again by itself
    return;
  }
}

void OnMemoryFault(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  Worker* worker = Worker::Running();
  if (worker != nullptr) {
    if (address - g_arena_base.load() < g_arena_bytes.load()) {
      worker->Interrupt(context, {FaultKind::kIllegalAddress, address});
      return;
    }
    if (worker->InGuard(address)) {
      worker->Interrupt(context, {FaultKind::kStackOverflow, address});
      return;
    }
  }
  Chain(signal, info, context);
}

SMOLVM_NOT_INSTRUMENTED void OnKick(int signal, siginfo_t* info, void* context) {
#ifdef __SANITIZE_THREAD__
  // Elsewhere the signal may have found the sanitizer between two fibres.
  if (!CodeRegion::Holds(InterruptedAddress(context))) return;
#endif
  Worker* worker = Worker::Running();
  if (worker != nullptr && worker->InterruptIfCancelled(context)) return;
  Chain(signal, info, context);
}

void Install(int signal, void (*handler)(int, siginfo_t*, void*), struct sigaction* old) {
  struct sigaction action {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, old);
}

}  // namespace

CUresult ResultOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case FaultKind::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case FaultKind::kTrap:
      return CUDA_ERROR_LAUNCH_FAILED;
    case FaultKind::kIllegalCall:
      return CUDA_ERROR_INVALID_PC;
    case FaultKind::kStackOverflow:
      return CUDA_ERROR_HARDWARE_STACK_ERROR;
    case FaultKind::kAssert:
      return CUDA_ERROR_ASSERT;
    case FaultKind::kTimeout:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case FaultKind::kDeadlock:
      return CUDA_ERROR_LAUNCH_FAILED;
    case FaultKind::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

const char* NameOf(FaultKind kind) {
  switch (kind) {
    case FaultKind::kIllegalAddress:
      return "illegal address";
    case FaultKind::kMisaligned:
      return "misaligned address";
    case FaultKind::kTrap:
      return "trap";
    case FaultKind::kIllegalCall:
      return "call of an address that is no function of this signature";
    case FaultKind::kStackOverflow:
      return "stack overflow";
    case FaultKind::kAssert:
      return "assertion failed";
    case FaultKind::kTimeout:
      return "ran longer than the time limit";
    case FaultKind::kDeadlock:
      return "all threads wait for each other";
    case FaultKind::kIllegalInstruction:
      return "illegal instruction";
  }
  return "fault";
}

void InstallFaultHandlers(const Arena& arena) {
  static std::once_flag once;
  std::call_once(once, [&] {
    g_arena_base.store(arena.base());
    g_arena_bytes.store(arena.reserved_bytes());
    Install(SIGSEGV, &OnMemoryFault, &g_previous[0].action);
    Install(SIGBUS, &OnMemoryFault, &g_previous[1].action);
    Install(kKickSignal, &OnKick, &g_previous[2].action);
  });
}

SignalStack::SignalStack() {
  stack_t old{};
  constexpr size_t kEnough = 16 << 10;
  if (sigaltstack(nullptr, &old) == 0 && !(old.ss_flags & SS_DISABLE) && old.ss_size >= kEnough)
    return;
  // AVX-512 state alone needs a few KiB; sysconf knows what this CPU needs.
  const size_t bytes = std::max<size_t>(64 << 10, sysconf(_SC_MINSIGSTKSZ) * 2);
  memory_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory_ == MAP_FAILED) {
    memory_ = nullptr;
    return;
  }
  stack_t mine{};
  mine.ss_sp = memory_;
  mine.ss_size = bytes;
  sigaltstack(&mine, nullptr);
}

SignalStack::~SignalStack() {
  if (memory_ == nullptr) return;
  stack_t now{};
  if (sigaltstack(nullptr, &now) != 0 || now.ss_sp != memory_) return;
  const size_t bytes = now.ss_size;
  stack_t off{};
  off.ss_flags = SS_DISABLE;
  sigaltstack(&off, nullptr);
  munmap(memory_, bytes);
}

}  // namespace smolvm::emulation
