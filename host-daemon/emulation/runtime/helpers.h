// The functions that generated code calls. It reaches them through a table, by index, so that
// compiled objects hold no addresses of this process and can be kept on disk.
//
// Signatures: result, then parameters. v none, i 32-bit, l 64-bit, f float, d double, p the
// ThreadContext.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host-daemon/emulation/runtime/context.h"

namespace smolvm::emulation {

struct Launch;

// A loop that waits yields after this many rounds.
inline constexpr uint32_t kSpinsBeforeYield = 16;

// HELPER(name, signature). The order is part of the layout of cached objects: helpers.cc has the
// functions.
#define SMOLVM_HELPERS(HELPER)  \
  HELPER(Fault, "vpil")         \
  HELPER(Yield, "vp")           \
  HELPER(Exit, "vp")            \
  HELPER(BarSync, "vpii")       \
  HELPER(BarArrive, "vpii")     \
  HELPER(BarRed, "ipiiii")      \
  HELPER(WarpSync, "vpi")       \
  HELPER(Shfl, "lpiiiii")       \
  HELPER(Vote, "ipiii")         \
  HELPER(Match, "lpiil")        \
  HELPER(Redux, "ipiii")        \
  HELPER(ActiveMask, "ipi")     \
  HELPER(Elect, "lpi")          \
  HELPER(Printf, "ipll")        \
  HELPER(AssertFail, "vpllill") \
  HELPER(Malloc, "lpl")         \
  HELPER(Free, "vpl")           \
  HELPER(GlobalTimer, "l")      \
  HELPER(NanoSleep, "vpi")      \
  HELPER(Ex2F32, "ff")          \
  HELPER(Lg2F32, "ff")          \
  HELPER(SinF32, "ff")          \
  HELPER(CosF32, "ff")          \
  HELPER(TanhF32, "ff")         \
  HELPER(RoundedF32, "fiifff")  \
  HELPER(RoundedF64, "diiddd")  \
  HELPER(RoundF64ToF32, "fid")  \
  HELPER(IntToFloat, "diili")   \
  HELPER(FmaF16, "iiiii")       \
  HELPER(FmaBf16, "iiiii")      \
  HELPER(F64ToF16, "iid")       \
  HELPER(F64ToBf16, "iid")      \
  HELPER(Fns, "iiii")           \
  HELPER(Frame, "ppl")          \
  HELPER(Finish, "vp")          \
  HELPER(WarpResult, "lp")      \
  HELPER(BarResult, "ipii")

enum class Helper : uint32_t {
#define HELPER(name, signature) k##name,
  SMOLVM_HELPERS(HELPER)
#undef HELPER
      kCount
};

inline constexpr const char* kHelperSignatures[] = {
#define HELPER(name, signature) signature,
    SMOLVM_HELPERS(HELPER)
#undef HELPER
};
inline constexpr const char* kHelperNames[] = {
#define HELPER(name, signature) #name,
    SMOLVM_HELPERS(HELPER)
#undef HELPER
};

// The table; entries in the order of enum Helper.
void* const* HelperTable();

// Everything of a block's context, and its index alone.
void FillBlockContext(const Launch& launch, uint64_t index, uintptr_t memory,
                      BlockContext* context);
void SetBlockIndex(const Launch& launch, uint64_t index, BlockContext* context);

}  // namespace smolvm::emulation
