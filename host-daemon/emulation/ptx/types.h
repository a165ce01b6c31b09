// The scalar vocabulary of PTX: types, state spaces and the values of instruction modifiers.
//
// Sources: PTX ISA 9.0, chapters 5 (State Spaces, Types, and Variables) and 9 (Instruction Set).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace smolvm::emulation::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kBf16,
  kF32,
  kF64,
  // Packed: one register, several lanes.
  kF16x2,
  kBf16x2,
  kF32x2,
  kU16x2,
  kS16x2,
  // Alternate formats; they appear in cvt, mma and reductions only.
  kTf32,
  kE4m3,
  kE5m2,
  kE4m3x2,
  kE5m2x2,
  kE4m3x4,
  kE5m2x4,
  kE2m1,
  kE2m3,
  kE3m2,
  kE2m1x2,
  kE2m3x2,
  kE3m2x2,
  kE2m1x4,
  kE2m3x4,
  kE3m2x4,
  kUe8m0,
  kUe8m0x2,
  // Sub-byte integers and bits of mma.
  kB1,
  kU4,
  kS4,
  // Opaque: 64-bit handles.
  kTexref,
  kSamplerref,
  kSurfref,
};

// 0 for kNone and kPred. Sub-byte types of mma give 4 or 1, kE2m1 4, the 6-bit ones 6 (unpacked: 8
// each).
unsigned BitsOf(Type type);
// BitsOf rounded up to bytes; 1 for kPred.
size_t BytesOf(Type type);
// ".f32" without the dot; "" for kNone.
std::string_view NameOf(Type type);
// "f32" → kF32; false when there is no such type.
bool FindType(std::string_view name, Type* type);

bool IsSigned(Type type);    // .s8 … .s64, .s16x2
bool IsUnsigned(Type type);  // .u8 … .u64, .u16x2
bool IsInteger(Type type);   // signed or unsigned
bool IsBits(Type type);      // .b8 … .b128
bool IsFloat(Type type);     // .f16, .bf16, .f32, .f64, their packed forms, and .tf32

enum class StateSpace : uint8_t {
  kNone,  // none written: generic, for ld, st, atom and the like
  kReg,
  kConst,
  kGlobal,
  kLocal,
  kParam,   // also .param::entry and .param::func: the symbol says which
  kShared,  // also .shared::cta
  kSharedCluster,
  kTex,
};
std::string_view NameOf(StateSpace space);

enum class Rounding : uint8_t {
  kNone,
  kRn,
  kRz,
  kRm,
  kRp,
  kRna,
  kRs,   // stochastic
  kRni,  // to an integer, result still floating
  kRzi,
  kRmi,
  kRpi,
};

enum class Half : uint8_t { kNone, kLo, kHi, kWide };  // of mul and mad

enum class Compare : uint8_t {
  kNone,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kLo,  // unsigned <, ≤, >, ≥
  kLs,
  kHi,
  kHs,
  kEqu,  // true when unordered
  kNeu,
  kLtu,
  kLeu,
  kGtu,
  kGeu,
  kNum,  // neither is NaN
  kNan,  // one is NaN
};

enum class Bool : uint8_t { kNone, kAnd, kOr, kXor };  // of set and setp

// Of atom, red, redux, bar.red, multimem and cp.reduce.
enum class Reduction : uint8_t {
  kNone,
  kAnd,
  kOr,
  kXor,
  kAdd,
  kInc,
  kDec,
  kMin,
  kMax,
  kCas,
  kExch,
  kPopc,
};

enum class Order : uint8_t {
  kNone,
  kWeak,
  kRelaxed,
  kAcquire,
  kRelease,
  kAcqRel,
  kSc,
  kVolatile,
  kMmio,
};
enum class Scope : uint8_t { kNone, kCta, kCluster, kGpu, kSys };  // membar.gl is kGpu

enum class Cache : uint8_t { kNone, kCa, kCg, kCs, kLu, kCv, kWb, kWt };

enum class Lane : uint8_t { kNone, kUp, kDown, kBfly, kIdx };                 // shfl
enum class Vote : uint8_t { kNone, kAll, kAny, kUni, kBallot };               // vote, match
enum class Permute : uint8_t { kNone, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };  // prmt
enum class Test : uint8_t { kNone, kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
enum class Direction : uint8_t { kNone, kLeft, kRight };  // shf
enum class Clamp : uint8_t {
  kNone,
  kWrap,
  kClamp,
  kTrap,
  kZero
};  // shf, bmsk, szext, surfaces, video shifts
enum class Geometry : uint8_t { kNone, k1d, k2d, k3d, kA1d, kA2d, kCube, kAcube, k2dms, kA2dms };

// Byte and half-word selectors of video operands: "%r1.b2", "%r1.h0". Packed forms ("%r1.b3210")
// are refused.
enum class Selector : uint8_t { kNone, kB0, kB1, kB2, kB3, kH0, kH1 };

enum class Linkage : uint8_t { kNone, kExtern, kVisible, kWeak, kCommon };

// Special registers; those with components take them from Operand::component.
enum class Special : uint8_t {
  kTid,
  kNtid,
  kLaneid,
  kWarpid,
  kNwarpid,
  kCtaid,
  kNctaid,
  kSmid,
  kNsmid,
  kGridid,
  kIsExplicitCluster,
  kClusterid,
  kNclusterid,
  kClusterCtaid,
  kClusterNctaid,
  kClusterCtarank,
  kClusterNctarank,
  kLanemaskEq,
  kLanemaskLe,
  kLanemaskLt,
  kLanemaskGe,
  kLanemaskGt,
  kClock,
  kClockHi,
  kClock64,
  kPm,      // component: which
  kPm64,    // component: which
  kEnvreg,  // component: which
  kGlobaltimer,
  kGlobaltimerLo,
  kGlobaltimerHi,
  kReservedSmemOffsetBegin,
  kReservedSmemOffsetEnd,
  kReservedSmemOffsetCap,
  kReservedSmemOffset,  // component: which
  kTotalSmemSize,
  kAggrSmemSize,
  kDynamicSmemSize,
  kCurrentGraphExec,
};
// "%tid", without its component.
std::string_view NameOf(Special special);
// The type that the ISA gives it; reading with a narrower one truncates.
Type TypeOf(Special special);
// Whether it is written with .x, .y, .z or .w.
bool HasComponents(Special special);
// "%envreg2" → kEnvreg, 2. False when there is no such register.
bool FindSpecial(std::string_view name, Special* special, unsigned* number);

}  // namespace smolvm::emulation::ptx
