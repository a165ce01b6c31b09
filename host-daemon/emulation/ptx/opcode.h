// The instructions of PTX, and what each may look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace smolvm::emulation::ptx {

enum class Opcode : uint8_t {
#define OPCODE(enumerator, name, destinations, least, most, types, modifiers) enumerator,
#define ALIAS(enumerator, name)
#include "host-daemon/emulation/ptx/opcodes.def"
#undef ALIAS
#undef OPCODE
};

inline constexpr size_t kOpcodeCount = 0
// NOLINTNEXTLINE(bugprone-macro-parentheses): a term of the sum below.
#define OPCODE(enumerator, name, destinations, least, most, types, modifiers) +1
#define ALIAS(enumerator, name)
#include "host-daemon/emulation/ptx/opcodes.def"
#undef ALIAS
#undef OPCODE
    ;

// Which suffixes an instruction takes besides its types.
namespace modifier {
enum ModifierClass : uint64_t {
  kRounding = uint64_t{1} << 0,    // .rn .rz .rm .rp .rna .rs .rni .rzi .rmi .rpi
  kFtz = uint64_t{1} << 1,         // .ftz
  kSat = uint64_t{1} << 2,         // .sat .satfinite
  kRelu = uint64_t{1} << 3,        // .relu
  kApprox = uint64_t{1} << 4,      // .approx .full
  kCc = uint64_t{1} << 5,          // .cc
  kHalf = uint64_t{1} << 6,        // .lo .hi .wide
  kNaN = uint64_t{1} << 7,         // .NaN
  kXorsign = uint64_t{1} << 8,     // .xorsign .abs
  kAbs = uint64_t{1} << 9,         // .abs
  kOob = uint64_t{1} << 10,        // .oob
  kShiftamt = uint64_t{1} << 11,   // .shiftamt
  kClamp = uint64_t{1} << 12,      // .wrap .clamp .trap .zero
  kTest = uint64_t{1} << 13,       // .finite .infinite .number .notanumber .normal .subnormal
  kCompare = uint64_t{1} << 14,    // .eq …
  kBool = uint64_t{1} << 15,       // .and .or .xor
  kDirection = uint64_t{1} << 16,  // .l .r
  kLane = uint64_t{1} << 17,       // .up .down .bfly .idx
  kSync = uint64_t{1} << 18,       // .sync
  kPermute = uint64_t{1} << 19,    // .f4e …
  kSpace = uint64_t{1} << 20,      // .global …
  kOrder = uint64_t{1} << 21,      // .relaxed … .volatile
  kScope = uint64_t{1} << 22,      // .cta .cluster .gpu .sys .gl
  kCache = uint64_t{1} << 23,      // .ca .cg .cs .lu .cv .wb .wt
  kNc = uint64_t{1} << 24,         // .nc
  kHints = uint64_t{1} << 25,      // .L1::… .L2::… .level::… .unified: no effect on results
  kVector = uint64_t{1} << 26,     // .v2 .v4 .v8
  kTo = uint64_t{1} << 27,         // .to
  kScaled = uint64_t{1} << 28,     // .scaled::n2::ue8m0
  kReduction = uint64_t{1} << 29,  // .add .min …
  kNoftz = uint64_t{1} << 30,      // .noftz
  kVote = uint64_t{1} << 31,       // .all .any .uni .ballot
  kUni = uint64_t{1} << 32,        // .uni
  kAligned = uint64_t{1} << 33,    // .aligned
  kGeometry = uint64_t{1} << 34,   // .1d …
  kVideo = uint64_t{1} << 35,      // .add .min .max, .po .shr7 .shr15
  kRaw = uint64_t{1} << 36,        // anything: kept as text
};
}  // namespace modifier

struct OpcodeInfo {
  std::string_view name;
  uint8_t destinations;
  uint8_t least_operands;
  uint8_t most_operands;
  uint8_t types;
  uint64_t modifiers;  // modifier::ModifierClass bits
};

const OpcodeInfo& InfoOf(Opcode opcode);
inline std::string_view NameOf(Opcode opcode) { return InfoOf(opcode).name; }

// Matches the leading parts of a mnemonic ("cp.async.ca.shared.global"). False when no instruction
// begins so; `length` receives how much of the text is the name.
bool FindOpcode(std::string_view mnemonic, Opcode* opcode, size_t* length);

// Whether control does not simply go on to the next instruction: bra, brx.idx, ret, exit and trap.
bool EndsBlock(Opcode opcode);

}  // namespace smolvm::emulation::ptx
