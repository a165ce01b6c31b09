#include "machine/util/interrupt.h"

#include <signal.h>

#include <atomic>

#include "machine/util/failure.h"

namespace smolvm::machine {
namespace {

std::atomic<int> g_count;
std::atomic<int> g_last;

void Note(int signal) {
  g_last = signal;
  ++g_count;
}

}  // namespace

void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = Note;  // without SA_RESTART: poll and sleep return
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

int InterruptCount() { return g_count; }

int LastInterrupt() { return g_last; }

void CheckInterrupt() {
  if (g_count > 0) throw Failure("interrupted", 128 + g_last);
}

}  // namespace smolvm::machine
