// The probe's kernel: c = a + b over float32 elements, each one checked.
#pragma once

#include <cstdint>

#include "probe/driver.h"

namespace smolvm::probe {

struct VectorAddResult {
  Result code = 0;             // The first error code that a call gave.
  const char* call = nullptr;  // That call's name; null when none failed.
  bool match = false;          // Every element of c is right.
};

// Needs a current context. Frees what it allocates.
VectorAddResult VectorAdd(const Driver& driver, std::uint32_t elements);

}  // namespace smolvm::probe
