#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace smolvm::gpu {

struct LaunchResult {
  int status = 0;           // the program's exit status, or 128 + the signal that ended it
  std::string last_stderr;  // the last kKeptStderr bytes of what it wrote to stderr
};

// What is kept of stderr to explain a failure. podman's own errors are its last words.
inline constexpr std::size_t kKeptStderr = 64 * 1024;

// Runs argv[0] (looked up in PATH) with this process's stdin, stdout and terminal, and waits for
// it. Its stderr is passed on as it comes. SIGINT, SIGTERM, SIGHUP and SIGQUIT sent to this process
// go on to the program; those that the terminal sends reach it anyway.
//
// Throws std::system_error when the program cannot be started.
// *Threads*: from one thread at a time; it replaces the process's handlers of these signals.
LaunchResult LaunchAndWatch(const std::vector<std::string>& argv);

}  // namespace smolvm::gpu
