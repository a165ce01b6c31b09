// What ends a launch early: hardware faults (by signal) and faults that generated code reports.
#pragma once

#include <cuda.h>
#include <signal.h>

#include <cstdint>

#include "host-daemon/emulation/device/arena.h"
#include "host-daemon/emulation/device/signals.h"
#include "host-daemon/emulation/runtime/context.h"

namespace smolvm::emulation {

struct Fault {
  FaultKind kind;
  uint64_t address;  // of the access, or of the function called
  // Of code for several threads at once: whether ThreadContext::lane_at says which.
  bool is_exact = false;
};

CUresult ResultOf(FaultKind kind);
const char* NameOf(FaultKind kind);

// Installs the handlers of SIGSEGV, SIGBUS and kKickSignal once. Signals that no kernel caused go
// to the handlers found then.
void InstallFaultHandlers(const Arena& arena);

// Gives the calling thread an alternate signal stack, unless it has one.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  void* memory_ = nullptr;
};

}  // namespace smolvm::emulation
