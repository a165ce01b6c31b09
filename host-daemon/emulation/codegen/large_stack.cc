#include "host-daemon/emulation/codegen/large_stack.h"

#include <pthread.h>
#include <signal.h>

#include <cstring>

namespace smolvm::emulation::codegen {

bool RunOnLargeStack(const std::function<void()>& body, std::string* error) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kLargeStackBytes);
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  // The program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int code =
      pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (code != 0) {
    *error = std::string("no thread for the compiler: ") + strerror(code);
    return false;
  }
  pthread_join(thread, nullptr);
  return true;
}

}  // namespace smolvm::emulation::codegen
