#pragma once

#include <cstdint>
#include <string>

#include "machine/state/record.h"

namespace smolvm::machine {

// How long the machine may take to become ready, in seconds: what the user said, else 30, ten times
// that when it is emulated.
uint32_t ReadyTimeout(const MachineRecord& record);

// One line for a machine that did not become ready in time: what happened and the likely cause.
std::string ExplainReadyTimeout(const MachineRecord& record, const std::string& console);

struct HostMemory {
  uint64_t total_mib = 0;
  uint64_t available_mib = 0;
};
HostMemory AskHostMemory();

}  // namespace smolvm::machine
