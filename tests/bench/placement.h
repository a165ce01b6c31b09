// Which processor runs what. A socket's ping-pong takes 9 µs where both processes have one
// processor and 30 to 45 where each has its own, so a number and its floor are taken in the same
// places.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace smolvm::bench {

struct Placement {
  std::string name;
  int guest;  // the processor of the program that asks
  int host;   // of the process that answers
};

// On the first processors that this process may use; only the first of them where it has but one.
std::vector<Placement> Placements();

// Every thread of a process; those that they start are bound too. False when none was found.
bool BindProcess(pid_t pid, const std::vector<int>& processors);
// The processes below it, too.
bool BindTree(pid_t root, const std::vector<int>& processors);

}  // namespace smolvm::bench
