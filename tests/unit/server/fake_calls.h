// What the tests' worker serves.
#pragma once

#include <cstdint>

namespace smolvm {

enum FakeCall : uint32_t {
  kFakeEcho = 0x100,       // replies with its arguments
  kFakePid = 0x101,        // replies with the worker's process id
  kFakeCrash = 0x102,      // SIGSEGV
  kFakeExit = 0x103,       // exit status 7
  kFakeBlock = 0x104,      // never returns, and says that it blocks
  kFakeStuck = 0x105,      // never returns
  kFakeCallGuest = 0x106,  // runs a host function in the guest
  kFakeOpenFds = 0x107,    // replies with how many descriptors the worker has
  kFakeForbidden = 0x108,  // replies with how attempts at what no worker needs ended
};

}  // namespace smolvm
