// What a process takes from itself before a guest speaks to it, so that a guest that took it over
// could do little with it.
#pragma once

#include <cstdint>
#include <string>

namespace smolvm::worker {

// What a process still needs; the least by default.
struct SandboxNeeds {
  // Entries of `folder` ("": of none), made when it is missing: read, made and replaced (a cache),
  // or only removed (a socket that its owner takes away at the end).
  std::string folder;
  enum class Entries { kReplace, kRemove } entries = Entries::kReplace;
  bool unix_sockets = false;  // make, connect and accept them
};

// From here on this process
//   - opens no file but those of `needs`, where the kernel has Landlock;
//   - starts no program and no other process, creates no socket (or Unix ones alone), traces and
//     signals no other process, and calls nothing that changes the system (seccomp: such calls
//     return EPERM).
// What is open stays usable.
//
// Must be called while the process has one thread: Landlock holds for its caller, and for the
// threads that it starts later. False with a one-line reason.
bool EnterSandbox(const SandboxNeeds& needs, std::string* error);

}  // namespace smolvm::worker
