// A child process with a control socket.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace smolvm::server {

struct Child {
  pid_t pid = -1;
  int control = -1;  // our end: SEQPACKET, close-on-exec
  int log = -1;      // what it writes to stdout and stderr, to be read (log_pipe.h)
};

// Starts `path` in a process group of its own (a Ctrl-C meant for the daemon is not for its
// sessions), stdin empty, its output a pipe, with the other end of the control socket as
// worker::kControlFd and nothing else of ours open: it has no terminal and no log. False with a
// one-line reason.
bool StartChild(const std::string& path, const std::vector<std::string>& arguments, Child* child,
                std::string* error);

// "exit=3" or "signal=11 signal_name=SEGV", from waitpid's status.
std::string DescribeExit(int status);

}  // namespace smolvm::server
