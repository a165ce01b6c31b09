// Random kernels of PTX that try to leave their memory: every way there is to name an address, at
// addresses that the launch gives.
//
// A kernel holds some twenty attempts, of which a launch picks one, so that many addresses are
// tried for one compilation. The threads of a launch are hostile or not; those that are not fill
// what is theirs alone, and look at the end whether it is still so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace smolvm::emulation {

// What the attempt's address counts from.
enum class HostileBase : uint32_t {
  kNothing,       // generic or global
  kLocal,         // generic, of the thread's own window
  kShared,        // generic, of the block's own
  kParam,         // generic, of the kernel's parameters
  kLocalOffset,   // in the window
  kSharedOffset,  // in the window
  kParamOffset,   // among the parameters
  kFunction,      // a function's handle
  kCount
};

// A kernel's parameters, in their order.
struct HostileParams {
  uint64_t out;     // HostileOutput of each thread of the grid
  uint64_t buffer;  // kHostileBuffer bytes that the attempts may do anything to
  uint64_t absolute;
  uint64_t delta;
  HostileBase base;
  uint32_t attempt;
  uint32_t mask,
      value;      // threads of block 0 whose number has this value under the mask are hostile
  uint32_t salt;  // of the launch
  uint32_t none = 0;
  uint64_t canary[4];  // HostilePattern(salt, 0xf, 0xfff, index)
};
inline constexpr size_t kHostileBuffer = 64 << 10;

struct HostileOutput {
  uint64_t verdict;  // salt << 32, and a HostileVerdict
  uint64_t value;    // what the attempt read
};
enum HostileVerdict : uint32_t {
  kIntact = 1,
  kLocalChanged = 2,
  kSharedChanged = 3,
  kParamsChanged = 4,
  kReadOther = 5,  // another thread's local memory
};

// What a thread fills its own memory with, the word `index` of it.
constexpr uint64_t HostilePattern(uint32_t salt, uint32_t block, uint32_t thread, uint32_t index) {
  return uint64_t{salt} << 32 | 0xc0u << 24 | block << 20 | thread << 8 | index;
}

struct HostileAttempt {
  std::string text;  // for messages
  // Whether it reads or writes at the address as it is, so that a foreign one must be refused;
  // `offset` is added.
  bool dereferences = false;
  int64_t offset = 0;
};

struct HostileModule {
  std::string text;  // with one kernel, "hostile"
  std::vector<HostileAttempt> attempts;
};

// In lanes: what the vector tier takes, without calls and local memory. The same seed makes the
// same module everywhere.
HostileModule MakeHostileModule(uint64_t seed, bool in_lanes);
// Each attempt that is known, once.
HostileModule MakeCompleteHostileModule(bool in_lanes, size_t part);
// How many parts those come in.
size_t CompleteHostileParts(bool in_lanes);

}  // namespace smolvm::emulation
