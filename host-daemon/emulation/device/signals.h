// Which signals threads of the emulation device take.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace smolvm::emulation {

// Interrupts cancelled kernels. ThreadSanitizer holds a signal back until the thread calls into
// libc, which a kernel's loop never does, but for those that faults raise.
#ifdef __SANITIZE_THREAD__
inline constexpr int kKickSignal = SIGTRAP;
#else
inline constexpr int kKickSignal = SIGURG;
#endif

// While it lives, threads that start block all signals, whose handlers are the program's, but those
// that kernels' faults raise and the one that ends kernels.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int needed : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, kKickSignal})
      sigdelset(&all, needed);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace smolvm::emulation
