// Starts a program in a child process, for all that runs on the host. (The agent in a machine has
// its own way, with users, terminals and roots: machine/agent/command.cc.)
//
// By vfork: a copy of the page tables is most of what starting a small program costs on some hosts,
// and posix_spawn cannot ask the kernel to end the child with its parent.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace smolvm {

struct ChildOptions {
  static constexpr int kInherit = -1, kNull = -2;  // /dev/null

  // Descriptors of the parent for the child's 0, 1 and 2.
  int input = kNull, output = kInherit, error = kInherit;
  // One more descriptor and its number in the child; nothing above that number stays open then,
  // close-on-exec or not.
  int pass = -1, pass_as = -1;
  bool own_group = false;
  // INT, TERM, HUP and PIPE have their default effect and nothing is blocked, whatever the parent
  // made of them. Otherwise what the parent ignores the child does too, and it blocks `mask`, or
  // what the calling thread does.
  bool default_signals = true;
  const sigset_t* mask = nullptr;
  int death_signal = 0;  // sent to the child when the thread that started it ends; 0: none
  std::string workdir;   // "": the parent's
  std::vector<std::pair<std::string, std::string>> env;  // added to the parent's; the last wins
  // Runs in the child before its program does, beside a parent that stands still and whose memory
  // it shares: async-signal-safe calls only.
  std::function<void()> prepare;
};

// Starts `program`, which is looked up in PATH when it has no slash, with `argv` (argv[0]
// included). Returns the child, or -1 with *error set to the errno of what failed (ENOENT: there is
// no such program, or no such workdir); no child is left then.
pid_t StartChild(const std::string& program, const std::vector<std::string>& argv,
                 const ChildOptions& options, int* error);

}  // namespace smolvm
