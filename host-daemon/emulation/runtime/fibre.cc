#include "host-daemon/emulation/runtime/fibre.h"

#include <ucontext.h>

#include <cstdint>
#include <new>

namespace smolvm::emulation {
namespace {

void NoteRedirection() {
#ifdef SMOLVM_WATCHES_FIBRES
  CurrentStack()->is_left_for_good = true;
#endif
}

}  // namespace

#if defined(__x86_64__)

extern "C" void smolvm_fibre_start();
extern "C" void smolvm_fibre_resume();

static void* PrepareStack(void* stack_top, void (*entry)(void*), void* argument) {
  // What smolvm_fibre_switch pops: r15 r14 r13 r12 rbx rbp, return address. After the return rsp is
  // 16-aligned, as the ABI wants it before the call in smolvm_fibre_start.
  auto top = reinterpret_cast<uintptr_t>(stack_top) & ~uintptr_t{15};
  auto* slots = reinterpret_cast<void**>(top) - 9;
  slots[0] = slots[1] = slots[2] = nullptr;
  slots[3] = reinterpret_cast<void*>(entry);
  slots[4] = argument;
  slots[5] = nullptr;
  slots[6] = reinterpret_cast<void*>(&smolvm_fibre_start);
  slots[7] = nullptr;
  return slots;
}

void RedirectToFibre(void* ucontext, void* to) {
  NoteRedirection();
  auto* context = static_cast<ucontext_t*>(ucontext);
  context->uc_mcontext.gregs[REG_RSP] = reinterpret_cast<greg_t>(to);
  context->uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(&smolvm_fibre_resume);
  context->uc_mcontext.gregs[REG_EFL] &=
      ~greg_t{0x400};  // direction flag: clear at function boundaries (ABI)
}

SMOLVM_NOT_INSTRUMENTED const void* InterruptedAddress(const void* ucontext) {
  return reinterpret_cast<const void*>(
      static_cast<const ucontext_t*>(ucontext)->uc_mcontext.gregs[REG_RIP]);
}

#else

// A suspended fibre is a ucontext_t that lies on its own stack.

namespace {
struct Start {
  ucontext_t context;
  void (*entry)(void*);
  void* argument;
};
void Trampoline(unsigned low, unsigned high) {
  auto* start = reinterpret_cast<Start*>((uintptr_t{high} << 32) | low);
  start->entry(start->argument);
  __builtin_trap();
}
}  // namespace

static void* PrepareStack(void* stack_top, void (*entry)(void*), void* argument) {
  auto top = (reinterpret_cast<uintptr_t>(stack_top) - sizeof(Start)) & ~uintptr_t{63};
  auto* start = new (reinterpret_cast<void*>(top)) Start;
  start->entry = entry;
  start->argument = argument;
  getcontext(&start->context);
  // makecontext wants base and size; only their sum matters to it.
  constexpr size_t kPiece = 4096;
  start->context.uc_stack.ss_sp = reinterpret_cast<void*>(top - kPiece);
  start->context.uc_stack.ss_size = kPiece;
  start->context.uc_link = nullptr;
  const auto address = reinterpret_cast<uintptr_t>(start);
  makecontext(&start->context, reinterpret_cast<void (*)()>(&Trampoline), 2,
              static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
  return &start->context;
}

extern "C" void smolvm_fibre_switch(void** save, void* to) {
  ucontext_t self;
  *save = &self;
  swapcontext(&self, static_cast<ucontext_t*>(to));
}

extern "C" void smolvm_fibre_jump(void* to) {
  setcontext(static_cast<ucontext_t*>(to));
  __builtin_trap();
}

void RedirectToFibre(void*, void* to) {
  NoteRedirection();
  setcontext(static_cast<ucontext_t*>(to));
}

SMOLVM_NOT_INSTRUMENTED const void* InterruptedAddress(const void* ucontext) {
#if defined(__aarch64__)
  return reinterpret_cast<const void*>(static_cast<const ucontext_t*>(ucontext)->uc_mcontext.pc);
#else
  (void)ucontext;
  return nullptr;
#endif
}

#endif

void* MakeFibre(const Stack& stack, void (*entry)(void*), void* argument) {
#ifdef SMOLVM_WATCHES_FIBRES
  WatchedStack* const watched = Watch(stack.bottom, stack.top, entry, argument);
  return PrepareStack(watched, &BeginOn, watched);
#else
  return PrepareStack(stack.top, entry, argument);
#endif
}

}  // namespace smolvm::emulation
