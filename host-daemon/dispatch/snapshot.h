// What the hello tells the guest, so that it answers most questions about devices by itself.
#pragma once

#include "protocol/api/driver_table.h"
#include "protocol/api/session.wire.h"

namespace smolvm::dispatch {

// Fills versions, calls and devices. The driver must have been initialised. Attributes describe the
// session: what its transport cannot give reads 0. `memory_limit`: as Policy::memory_limit.
CUresult FillSnapshot(const driver::DriverTable& driver, uint64_t memory_limit,
                      api::HelloReply* reply);

// The bits of HelloReply::known_calls.
std::string KnownCalls();

}  // namespace smolvm::dispatch
