// Signals that ask the launcher to end, noticed between steps so that every folder and process it
// made is taken away first.
#pragma once

namespace smolvm::machine {

// From here on SIGINT, SIGTERM and SIGHUP are only noted (and interrupt waiting system calls).
void CatchInterrupts();
// The number of signals so far, and the last of them (0: none).
int InterruptCount();
int LastInterrupt();
// Throws Failure with status 128 + signal when there was one.
void CheckInterrupt();

}  // namespace smolvm::machine
