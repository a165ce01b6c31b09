// What a worker takes from itself before a guest speaks to it, so that a guest that took the worker
// over could do little with it.
#pragma once

#include <string>

namespace smolvm::worker {

// For a worker whose backend is the emulation library and loaded: from here on this process
//   - opens no file but entries of `cache_folder` ("": none at all), where the kernel has Landlock;
//   - starts no program and no other process, creates no socket, traces and signals no other
//     process, and calls nothing that changes the system (seccomp: such calls return EPERM).
// What is open stays usable: the session's connections come through the daemon's control socket.
// `cache_folder` is made when it is missing.
//
// Must be called while the process has one thread: Landlock holds for its caller, and for the
// threads that it starts later. False with a one-line reason.
bool EnterSandbox(const std::string& cache_folder, std::string* error);

}  // namespace smolvm::worker
