#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace smolvm::gpu {

// Lets a poll end when a child process does.
// *Threads*: one.
class ChildEnd {
 public:
  explicit ChildEnd(pid_t child);
  ChildEnd(const ChildEnd&) = delete;
  ChildEnd& operator=(const ChildEnd&) = delete;
  ~ChildEnd();

  // Waits until `fd` (ignored when negative) has something to read or has ended (true), the child
  // has ended, the time is up (-1: never) or a signal arrived; it may also return early. Whether
  // the child has ended waitpid tells.
  bool WaitWith(int fd, int timeout_ms) const;

 private:
  int fd_;  // a pidfd, or -1
};

// What became of a program that was run for its output.
struct ProgramOutput {
  enum class End {
    kExited,     // `status` is its exit status
    kSignalled,  // `status` is the signal
    kNotFound,   // there is no such program
    kFailed,     // it could not be started, for another reason
    kTimedOut,   // it and its process group were killed at the limit
    kTooMuch,    // it wrote more than `limit_bytes` and was killed
  };
  End end = End::kFailed;
  int status = 0;
  std::string text;  // what it wrote to its standard output

  bool succeeded() const { return end == End::kExited && status == 0; }
};

// Runs argv[0] (looked up in PATH) in a process group of its own, with no input and its error
// output thrown away, and waits for it.
//
// It returns as soon as the program itself has ended, even when a child it left behind still holds
// the pipe (rootless podman leaves its pause process).
ProgramOutput RunForOutput(const std::vector<std::string>& argv, std::chrono::milliseconds limit,
                           std::size_t limit_bytes = 1 << 20);

}  // namespace smolvm::gpu
