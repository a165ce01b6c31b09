// The worker process: loads a backend, is given one session, serves it and ends.
//
// Started by the daemon with its end of the control socket as kControlFd. It ends with the session,
// or with the daemon. Whatever the session held (device memory, contexts, descriptors) goes with
// the process, so nothing here is freed at the end.
//
// Exit status: 0, the session has ended or there was none; 1, no backend (the daemon has been told
// why); 2, bad options or no daemon.
#pragma once

namespace smolvm::worker {

int WorkerMain(int argc, char** argv);

}  // namespace smolvm::worker
