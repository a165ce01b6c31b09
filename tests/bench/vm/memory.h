// What the processes of a machine take of the host's memory.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace smolvm::bench {

// KiB. A proportional share (PSS) counts a page that several processes have as a part of each, so
// that shares can be added up.
struct Memory {
  uint64_t resident = 0;
  uint64_t share = 0;
};

// By the programs' names.
using MemoryByProgram = std::map<std::string, Memory>;

// The processes below `root`, and those that they left to process 1 and that work in `folder`.
std::vector<pid_t> ProcessesOf(pid_t root, const std::string& folder);
// What they take at this moment. Where the kernel does not tell a process's share (a worker is not
// an ordinary user's to look into), what it has resident stands for it.
MemoryByProgram MemoryOf(const std::vector<pid_t>& processes);

uint64_t TotalShare(const MemoryByProgram& programs);

}  // namespace smolvm::bench
