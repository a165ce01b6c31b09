// What a process takes from itself before a guest speaks to it, so that native code of a guest in
// it gains nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace smolvm::sandbox {

// What a process still needs; the least by default: to compute, to start threads, and to speak over
// the descriptors that are open.
struct SandboxNeeds {
  // Entries of `folder` ("": of none).
  std::string folder;
  enum class Entries {
    kReplace,  // read, made and replaced (a cache); the folder is made when it is missing. Refused
               // without Landlock, because nothing else would keep the process to it.
    kRemove,   // removed (a socket that its owner takes away at the end)
    kServe,    // all that can be done to files, but devices (a share); or to this one file
    kRead,     // read and listed
  } entries = Entries::kReplace;
  // Capabilities that are kept, if the process has them: bits, as capabilities(7) numbers them.
  uint64_t capabilities = 0;
  // Accept connections of Unix sockets that listen already, and make pairs of stream sockets.
  bool accepts = false;
  // Make Unix stream sockets and connect them by their paths: a broker's.
  bool connects = false;
  // Memory may become executable here, and nowhere else: aligned to its size, a power of two.
  uintptr_t code = 0;
  size_t code_bytes = 0;
  // Files in memory that may be emptied and measured.
  std::vector<int> outputs;
};

// From here on this process makes the system calls of a short list alone, with arguments that are
// looked at where they matter (seccomp); any other returns EPERM. In particular it
//   - opens, names and changes no file but those of `needs`; where the kernel has Landlock, that
//     holds whatever the list lets through, and so do its scopes: no signal and no abstract socket
//     reaches a process outside;
//   - starts no program and no process, creates no socket but what `needs` says, sends to no name;
//   - signals, traces, reads and schedules no other process, not through a descriptor's owner
//     either (F_SETOWN);
//   - has no terminal (ioctl), no capability but those of `needs`, and no memory both writable and
//   executable.
// What is open stays usable.
//
// Must be called while the process has one thread: Landlock holds for its caller, and for the
// threads that it starts later. False with a one-line reason.
bool EnterSandbox(const SandboxNeeds& needs, std::string* error);

}  // namespace smolvm::sandbox
