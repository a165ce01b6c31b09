#pragma once

#include <cstdint>
#include <string>

#include "machine/guest/qemu.h"
#include "machine/state/record.h"

namespace smolvm::machine {

// How long a machine may take to become ready: 30 s, ten times that when it is emulated.
uint32_t DefaultReadyTimeout(const HostAbilities& host);

// One line for a machine that did not become ready in time: what happened and the likely cause.
std::string ExplainReadyTimeout(const MachineRecord& record, const HostAbilities& host,
                                const std::string& console);

struct HostMemory {
  uint64_t total_mib = 0;
  uint64_t available_mib = 0;
};
HostMemory AskHostMemory();

}  // namespace smolvm::machine
