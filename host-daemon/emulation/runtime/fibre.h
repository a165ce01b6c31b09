// Switching between stacks within one OS thread.
//
// A suspended fibre is named by one pointer (its saved stack pointer). On x86-64 the switch is
// hand-written and saves the callee-saved registers of the System V ABI (4 to 12 ns); elsewhere it
// is ucontext's. Floating-point control words are not switched: code on fibres leaves them at the
// ABI's defaults.
#pragma once

#include "host-daemon/emulation/runtime/sanitizer_fibre.h"
#include "host-daemon/emulation/runtime/stack_pool.h"

namespace smolvm::emulation {

// Prepares a stack so that the first switch to it calls entry(argument). `entry` must not return.
// The result stays valid until the first switch to it. What ran on the stack before is forgotten.
void* MakeFibre(const Stack& stack, void (*entry)(void*), void* argument);

extern "C" {
void smolvm_fibre_switch(void** save, void* to);
[[noreturn]] void smolvm_fibre_jump(void* to);
}

// Saves the running fibre in *save and continues `to`.
inline void SwitchFibre(void** save, void* to) {
#ifdef SMOLVM_WATCHES_FIBRES
  WatchedStack* const self = CurrentStack();
  smolvm_fibre_switch(save, to);
  LandOn(self);
#else
  smolvm_fibre_switch(save, to);
#endif
}

// Continues `to` and forgets the running fibre.
[[noreturn]] inline void JumpToFibre(void* to) {
#ifdef SMOLVM_WATCHES_FIBRES
  CurrentStack()->is_left_for_good = true;
#endif
  smolvm_fibre_jump(to);
}

// The same at the end of a fibre's first function, which is SMOLVM_NOT_INSTRUMENTED.
[[noreturn]] inline void EndFibre(void* to) {
#ifdef SMOLVM_WATCHES_FIBRES
  CurrentStack()->has_returned = true;
#endif
  smolvm_fibre_jump(to);
}

// Called in a signal handler: makes the interrupted thread continue `to` when the handler returns;
// what it was running is forgotten. May not return (ucontext).
void RedirectToFibre(void* ucontext, void* to);

// The address of the instruction a signal interrupted. Not instrumented.
const void* InterruptedAddress(const void* ucontext);

}  // namespace smolvm::emulation
