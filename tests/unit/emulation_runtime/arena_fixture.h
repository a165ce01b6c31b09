// One arena for all tests of a process: its address is fixed.
#pragma once

#include <cstdlib>
#include <iostream>

#include "host-daemon/emulation/device/arena.h"

namespace smolvm::emulation {

inline Arena& TestArena() {
  static Arena* arena = Arena::Create(256 << 20);
  if (arena == nullptr) {
    std::cerr << "the emulation arena's address range is taken\n";
    abort();
  }
  return *arena;
}

}  // namespace smolvm::emulation
