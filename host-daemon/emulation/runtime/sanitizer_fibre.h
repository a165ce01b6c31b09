// What the sanitizers have to know of fibres. Nothing of it is compiled in ordinary builds.
//
// AddressSanitizer must know which stack the thread is on, ThreadSanitizer whose history goes on.
// Both are told where a switch lands (LandOn), by code that knew before the switch what it runs on:
// so switches, jumps and redirections out of a signal handler are one case. Between leaving one
// stack and LandOn on the next no instrumented code runs.
//
// Limits: ThreadSanitizer knows 8,128 threads and fibres at once, and dies beyond (a cooperative
// grid of more threads than that). With detect_stack_use_after_return, off by default, what
// AddressSanitizer keeps for a fibre that a cancelled launch left behind is never given back.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SMOLVM_WATCHES_FIBRES 1
#endif

#ifndef SMOLVM_WATCHES_FIBRES

#define SMOLVM_NOT_INSTRUMENTED

#else

#include <cstddef>
#include <cstdint>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#include <sanitizer/tsan_interface.h>
#endif

#define SMOLVM_NOT_INSTRUMENTED \
  __attribute__((noinline, no_sanitize_address, no_sanitize_thread, no_sanitize_undefined))

namespace smolvm::emulation {

// A thread's own stack, or one that fibres run on, at whose top this then lies: there it is all
// zero at first, since the stack is fresh, and stays.
struct alignas(64) WatchedStack {
  const void* bottom;
  size_t size;
  void (*entry)(void*);
  void* argument;
  bool has_returned;      // what ran here is over, and has left all functions that it entered
  bool is_left_for_good;  // so is this, from within some function
  void* fake_stack;       // AddressSanitizer's
  void* history;          // ThreadSanitizer's; null until a fibre starts
};

inline thread_local WatchedStack t_own_stack{};
inline thread_local WatchedStack* t_current_stack = nullptr;

// What the calling code runs on. Async-signal-safe.
SMOLVM_NOT_INSTRUMENTED inline WatchedStack* CurrentStack() {
  if (t_current_stack == nullptr) {
#ifdef __SANITIZE_THREAD__
    t_own_stack.history = __tsan_get_current_fiber();
#endif
    t_current_stack = &t_own_stack;
  }
  return t_current_stack;
}

// To be called first after a switch to `self`.
SMOLVM_NOT_INSTRUMENTED inline void LandOn(WatchedStack* self) {
  WatchedStack* const before = CurrentStack();
  t_current_stack = self;
#ifdef __SANITIZE_ADDRESS__
  const bool is_over = before->has_returned || before->is_left_for_good;
  __sanitizer_start_switch_fiber(is_over ? nullptr : &before->fake_stack, self->bottom, self->size);
  // Of a thread's own stack only the sanitizer knows the bounds.
  __sanitizer_finish_switch_fiber(self->fake_stack, &before->bottom, &before->size);
#else
  if (self->history == nullptr) self->history = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(self->history, 0);
  if (before->is_left_for_good) {
    __tsan_destroy_fiber(before->history);
    before->history = nullptr;
  }
#endif
}

// Prepares a stack for a new fibre; what ran there before is forgotten. A history goes on if it
// can: making one takes milliseconds.
inline WatchedStack* Watch(char* bottom, char* top, void (*entry)(void*), void* argument) {
  auto* stack = reinterpret_cast<WatchedStack*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{63});
  --stack;
  void* history = stack->history;
#ifdef __SANITIZE_ADDRESS__
  // Functions that were left without a return have left their red zones.
  __asan_unpoison_memory_region(bottom, static_cast<size_t>(top - bottom));
#else
  if (history != nullptr && !stack->has_returned) {
    __tsan_destroy_fiber(history);
    history = nullptr;
  }
#endif
  *stack = {bottom, static_cast<size_t>(top - bottom), entry, argument, false, false, nullptr,
            history};
  return stack;
}

// First on a new fibre: a fibre's entry, whose argument is its WatchedStack.
SMOLVM_NOT_INSTRUMENTED inline void BeginOn(void* watched) {
  auto* self = static_cast<WatchedStack*>(watched);
  LandOn(self);
  self->entry(self->argument);
  __builtin_trap();
}

}  // namespace smolvm::emulation

#endif  // SMOLVM_WATCHES_FIBRES
