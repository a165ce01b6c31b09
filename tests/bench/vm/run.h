// A machine that runs one command and ends.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/bench/vm/memory.h"

namespace smolvm::bench {

struct MachineRun {
  // Milliseconds from the launcher's start.
  double last_line_ms = 0;  // until the command's last line has arrived here
  double end_ms = 0;        // until the launcher has ended, with nothing left behind
  std::string output;
  int status = -1;
  // At the moment at which the machine's processes took the most.
  MemoryByProgram memory;
};

// `smolvm machine run ARGUMENTS`, with `state` as its XDG_STATE_HOME. What it says on stderr goes
// to a file in `state`, which is shown when it fails; the process ends then.
MachineRun RunMachine(const std::filesystem::path& state, const std::vector<std::string>& arguments,
                      bool watch_memory);

[[noreturn]] void Fail(const std::string& what);

}  // namespace smolvm::bench
