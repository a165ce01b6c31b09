#include "host-daemon/emulation/ptx/mnemonic.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "host-daemon/emulation/ptx/quote.h"

namespace smolvm::emulation::ptx {
namespace {

// What a word may mean. Which of the meanings is meant depends on the instruction: ".lo" is half of
// a product in mul and an unsigned "less than" in setp.
struct Meaning {
  modifier::ModifierClass group;
  uint8_t value;
};

template <typename Enum>
constexpr Meaning Of(modifier::ModifierClass group, Enum value) {
  return {group, static_cast<uint8_t>(value)};
}

// Values of the groups that are sets of flags.
enum Flag : uint8_t {
  kPlain,
  kSatfinite,
  kFull,
  kAbsolute,
  kVideoAdd,
  kVideoMin,
  kVideoMax,
  kPlusOne,
  kShr7,
  kShr15,
};

using Words = std::unordered_multimap<std::string_view, Meaning>;

const Words& AllWords() {
  // NOLINTNEXTLINE(google-build-using-namespace): the table is written in these names.
  using namespace modifier;
  static const Words* const kWords = new Words{
      {"rn", Of(kRounding, Rounding::kRn)},
      {"rz", Of(kRounding, Rounding::kRz)},
      {"rm", Of(kRounding, Rounding::kRm)},
      {"rp", Of(kRounding, Rounding::kRp)},
      {"rna", Of(kRounding, Rounding::kRna)},
      {"rs", Of(kRounding, Rounding::kRs)},
      {"rni", Of(kRounding, Rounding::kRni)},
      {"rzi", Of(kRounding, Rounding::kRzi)},
      {"rmi", Of(kRounding, Rounding::kRmi)},
      {"rpi", Of(kRounding, Rounding::kRpi)},
      {"ftz", {kFtz, kPlain}},
      {"sat", {kSat, kPlain}},
      {"satfinite", {kSat, kSatfinite}},
      {"relu", {kRelu, kPlain}},
      {"approx", {kApprox, kPlain}},
      {"full", {kApprox, kFull}},
      {"cc", {kCc, kPlain}},
      {"lo", Of(kHalf, Half::kLo)},
      {"hi", Of(kHalf, Half::kHi)},
      {"wide", Of(kHalf, Half::kWide)},
      {"NaN", {kNaN, kPlain}},
      {"xorsign", {kXorsign, kPlain}},
      {"abs", {kXorsign, kAbsolute}},
      {"abs", {kAbs, kAbsolute}},
      {"oob", {kOob, kPlain}},
      {"shiftamt", {kShiftamt, kPlain}},
      {"wrap", Of(modifier::kClamp, Clamp::kWrap)},
      {"clamp", Of(modifier::kClamp, Clamp::kClamp)},
      {"trap", Of(modifier::kClamp, Clamp::kTrap)},
      {"zero", Of(modifier::kClamp, Clamp::kZero)},
      {"finite", Of(kTest, Test::kFinite)},
      {"infinite", Of(kTest, Test::kInfinite)},
      {"number", Of(kTest, Test::kNumber)},
      {"notanumber", Of(kTest, Test::kNotANumber)},
      {"normal", Of(kTest, Test::kNormal)},
      {"subnormal", Of(kTest, Test::kSubnormal)},
      {"eq", Of(kCompare, Compare::kEq)},
      {"ne", Of(kCompare, Compare::kNe)},
      {"lt", Of(kCompare, Compare::kLt)},
      {"le", Of(kCompare, Compare::kLe)},
      {"gt", Of(kCompare, Compare::kGt)},
      {"ge", Of(kCompare, Compare::kGe)},
      {"lo", Of(kCompare, Compare::kLo)},
      {"ls", Of(kCompare, Compare::kLs)},
      {"hi", Of(kCompare, Compare::kHi)},
      {"hs", Of(kCompare, Compare::kHs)},
      {"equ", Of(kCompare, Compare::kEqu)},
      {"neu", Of(kCompare, Compare::kNeu)},
      {"ltu", Of(kCompare, Compare::kLtu)},
      {"leu", Of(kCompare, Compare::kLeu)},
      {"gtu", Of(kCompare, Compare::kGtu)},
      {"geu", Of(kCompare, Compare::kGeu)},
      {"num", Of(kCompare, Compare::kNum)},
      {"nan", Of(kCompare, Compare::kNan)},
      {"and", Of(kBool, Bool::kAnd)},
      {"or", Of(kBool, Bool::kOr)},
      {"xor", Of(kBool, Bool::kXor)},
      {"l", Of(kDirection, Direction::kLeft)},
      {"r", Of(kDirection, Direction::kRight)},
      {"up", Of(kLane, Lane::kUp)},
      {"down", Of(kLane, Lane::kDown)},
      {"bfly", Of(kLane, Lane::kBfly)},
      {"idx", Of(kLane, Lane::kIdx)},
      {"sync", {kSync, kPlain}},
      {"f4e", Of(kPermute, Permute::kF4e)},
      {"b4e", Of(kPermute, Permute::kB4e)},
      {"rc8", Of(kPermute, Permute::kRc8)},
      {"ecl", Of(kPermute, Permute::kEcl)},
      {"ecr", Of(kPermute, Permute::kEcr)},
      {"rc16", Of(kPermute, Permute::kRc16)},
      {"const", Of(kSpace, StateSpace::kConst)},
      {"global", Of(kSpace, StateSpace::kGlobal)},
      {"local", Of(kSpace, StateSpace::kLocal)},
      {"param", Of(kSpace, StateSpace::kParam)},
      {"param::entry", Of(kSpace, StateSpace::kParam)},
      {"param::func", Of(kSpace, StateSpace::kParam)},
      {"shared", Of(kSpace, StateSpace::kShared)},
      {"shared::cta", Of(kSpace, StateSpace::kShared)},
      {"shared::cluster", Of(kSpace, StateSpace::kSharedCluster)},
      {"weak", Of(kOrder, Order::kWeak)},
      {"relaxed", Of(kOrder, Order::kRelaxed)},
      {"acquire", Of(kOrder, Order::kAcquire)},
      {"release", Of(kOrder, Order::kRelease)},
      {"acq_rel", Of(kOrder, Order::kAcqRel)},
      {"sc", Of(kOrder, Order::kSc)},
      {"volatile", Of(kOrder, Order::kVolatile)},
      {"mmio", Of(kOrder, Order::kMmio)},
      {"cta", Of(kScope, Scope::kCta)},
      {"cluster", Of(kScope, Scope::kCluster)},
      {"gpu", Of(kScope, Scope::kGpu)},
      {"gl", Of(kScope, Scope::kGpu)},
      {"sys", Of(kScope, Scope::kSys)},
      {"ca", Of(kCache, Cache::kCa)},
      {"cg", Of(kCache, Cache::kCg)},
      {"cs", Of(kCache, Cache::kCs)},
      {"lu", Of(kCache, Cache::kLu)},
      {"cv", Of(kCache, Cache::kCv)},
      {"wb", Of(kCache, Cache::kWb)},
      {"wt", Of(kCache, Cache::kWt)},
      {"nc", {kNc, kPlain}},
      {"v2", {kVector, 2}},
      {"v4", {kVector, 4}},
      {"v8", {kVector, 8}},
      {"to", {kTo, kPlain}},
      {"scaled::n2::ue8m0", {kScaled, kPlain}},
      {"add", Of(kReduction, Reduction::kAdd)},
      {"inc", Of(kReduction, Reduction::kInc)},
      {"dec", Of(kReduction, Reduction::kDec)},
      {"min", Of(kReduction, Reduction::kMin)},
      {"max", Of(kReduction, Reduction::kMax)},
      {"and", Of(kReduction, Reduction::kAnd)},
      {"or", Of(kReduction, Reduction::kOr)},
      {"xor", Of(kReduction, Reduction::kXor)},
      {"cas", Of(kReduction, Reduction::kCas)},
      {"exch", Of(kReduction, Reduction::kExch)},
      {"popc", Of(kReduction, Reduction::kPopc)},
      {"noftz", {kNoftz, kPlain}},
      {"all", Of(modifier::kVote, Vote::kAll)},
      {"any", Of(modifier::kVote, Vote::kAny)},
      {"uni", Of(modifier::kVote, Vote::kUni)},
      {"ballot", Of(modifier::kVote, Vote::kBallot)},
      {"uni", {kUni, kPlain}},
      {"aligned", {kAligned, kPlain}},
      {"1d", Of(kGeometry, Geometry::k1d)},
      {"2d", Of(kGeometry, Geometry::k2d)},
      {"3d", Of(kGeometry, Geometry::k3d)},
      {"a1d", Of(kGeometry, Geometry::kA1d)},
      {"a2d", Of(kGeometry, Geometry::kA2d)},
      {"cube", Of(kGeometry, Geometry::kCube)},
      {"acube", Of(kGeometry, Geometry::kAcube)},
      {"2dms", Of(kGeometry, Geometry::k2dms)},
      {"a2dms", Of(kGeometry, Geometry::kA2dms)},
      {"add", {kVideo, kVideoAdd}},
      {"min", {kVideo, kVideoMin}},
      {"max", {kVideo, kVideoMax}},
      {"po", {kVideo, kPlusOne}},
      {"shr7", {kVideo, kShr7}},
      {"shr15", {kVideo, kShr15}},
  };
  return *kWords;
}

// ".L2::128B", ".level::eviction_priority": they guide caches only.
bool IsHint(std::string_view word) {
  return word == "L1" || word == "L2" || word.starts_with("L1::") || word.starts_with("L2::") ||
         word.starts_with("level::") || word == "unified" || word == "tensormap";
}

// More than one word of these groups may follow one another.
bool MayRepeat(modifier::ModifierClass group) {
  return group == modifier::kXorsign || group == modifier::kVideo || group == modifier::kHints ||
         group == modifier::kSat;
}

void ApplyVideo(Flag flag, Modifiers* m) {
  switch (flag) {
    case kVideoAdd:
      m->reduction = Reduction::kAdd;
      break;
    case kVideoMin:
      m->reduction = Reduction::kMin;
      break;
    case kVideoMax:
      m->reduction = Reduction::kMax;
      break;
    case kPlusOne:
      m->po = true;
      break;
    case kShr7:
      m->video_shift = 7;
      break;
    default:
      m->video_shift = 15;
      break;
  }
}

template <typename Enum>
void Set(Enum* field, uint8_t value) {
  *field = static_cast<Enum>(value);
}

void Apply(Meaning meaning, Modifiers* m) {
  const uint8_t value = meaning.value;
  switch (meaning.group) {
    case modifier::kRounding:
      return Set(&m->rounding, value);
    case modifier::kHalf:
      return Set(&m->half, value);
    case modifier::kClamp:
      return Set(&m->clamp, value);
    case modifier::kTest:
      return Set(&m->test, value);
    case modifier::kCompare:
      return Set(&m->compare, value);
    case modifier::kBool:
      return Set(&m->boolean, value);
    case modifier::kDirection:
      return Set(&m->direction, value);
    case modifier::kLane:
      return Set(&m->lane, value);
    case modifier::kPermute:
      return Set(&m->permute, value);
    case modifier::kSpace:
      return Set(m->space == StateSpace::kNone ? &m->space : &m->source_space, value);
    case modifier::kOrder:
      return Set(&m->order, value);
    case modifier::kScope:
      return Set(&m->scope, value);
    case modifier::kCache:
      return Set(&m->cache, value);
    case modifier::kReduction:
      return Set(&m->reduction, value);
    case modifier::kVote:
      return Set(&m->vote, value);
    case modifier::kGeometry:
      return Set(&m->geometry, value);
    case modifier::kVector:
      m->vector = value;
      return;
    case modifier::kVideo:
      return ApplyVideo(static_cast<Flag>(value), m);
    case modifier::kSat:
      if (value == kSatfinite) {
        m->satfinite = true;
      } else {
        m->sat = true;
      }
      return;
    case modifier::kApprox:
      if (value == kFull) {
        m->full = true;
      } else {
        m->approx = true;
      }
      return;
    case modifier::kXorsign:
      if (value == kAbsolute) {
        m->abs = true;
      } else {
        m->xorsign = true;
      }
      return;
    case modifier::kAbs:
      m->abs = true;
      return;
    case modifier::kFtz:
      m->ftz = true;
      return;
    case modifier::kRelu:
      m->relu = true;
      return;
    case modifier::kCc:
      m->cc = true;
      return;
    case modifier::kNaN:
      m->nan = true;
      return;
    case modifier::kOob:
      m->oob = true;
      return;
    case modifier::kShiftamt:
      m->shiftamt = true;
      return;
    case modifier::kSync:
      m->sync = true;
      return;
    case modifier::kNc:
      m->nc = true;
      return;
    case modifier::kTo:
      m->to = true;
      return;
    case modifier::kNoftz:
      m->noftz = true;
      return;
    case modifier::kUni:
      m->uni = true;
      return;
    case modifier::kAligned:
      m->aligned = true;
      return;
    case modifier::kScaled:
      m->scaled = true;
      return;
    case modifier::kHints:
    case modifier::kRaw:
      return;
  }
}

class Reader {
 public:
  Reader(const OpcodeInfo& info, Instruction* instruction)
      : info_(info), instruction_(instruction) {}

  // Whether the word has a place in this instruction.
  bool Read(std::string_view word) {
    return ReadType(word) || ReadModifier(word) || (info_.modifiers & modifier::kRaw) != 0;
  }

 private:
  bool ReadType(std::string_view word) {
    Type type;
    if (instruction_->type_count >= info_.types || !FindType(word, &type)) return false;
    instruction_->types[instruction_->type_count++] = type;
    return true;
  }

  bool ReadModifier(std::string_view word) {
    if ((info_.modifiers & modifier::kHints) != 0 && IsHint(word)) {
      if (word == "L2::cache_hint") instruction_->modifiers.cache_hint = true;
      return true;
    }
    const auto [begin, end] = AllWords().equal_range(word);
    for (auto entry = begin; entry != end; ++entry) {
      const Meaning meaning = entry->second;
      if ((info_.modifiers & meaning.group) == 0 || IsTaken(meaning.group)) continue;
      const bool keeps_mmio = meaning.group == modifier::kOrder && is_mmio();
      seen_ |= meaning.group;
      if (!keeps_mmio) Apply(meaning, &instruction_->modifiers);
      return true;
    }
    return false;
  }

  bool IsTaken(modifier::ModifierClass group) const {
    if ((seen_ & group) == 0 || MayRepeat(group)) return false;
    if (group == modifier::kOrder && is_mmio()) return false;  // "ld.mmio.relaxed.sys"
    // Raw instructions name two spaces: "cp.async.ca.shared.global".
    return group != modifier::kSpace || (info_.modifiers & modifier::kRaw) == 0;
  }
  bool is_mmio() const { return instruction_->modifiers.order == Order::kMmio; }

  const OpcodeInfo& info_;
  Instruction* instruction_;
  uint64_t seen_ = 0;
};

}  // namespace

bool ParseMnemonic(std::string_view mnemonic, Instruction* instruction, std::string* error) {
  size_t length;
  if (!FindOpcode(mnemonic, &instruction->opcode, &length)) {
    *error = "unknown instruction " + Quoted(mnemonic.substr(0, mnemonic.find('.')));
    return false;
  }
  instruction->text = mnemonic;
  // "bar" is the aligned form of "barrier" (PTX ISA 9.7.13.1).
  if (mnemonic.starts_with("bar.") && instruction->opcode != Opcode::kBarWarpSync) {
    instruction->modifiers.aligned = true;
  }
  const OpcodeInfo& info = InfoOf(instruction->opcode);
  Reader reader(info, instruction);
  while (length < mnemonic.size()) {
    const size_t begin = length + 1;
    length = std::min(mnemonic.find('.', begin), mnemonic.size());
    const std::string_view word = mnemonic.substr(begin, length - begin);
    if (!reader.Read(word)) {
      *error = "modifier " + Quoted(word) + " has no place in " + Quoted(mnemonic);
      return false;
    }
  }
  if (info.types > 0 && instruction->type_count == 0 && (info.modifiers & modifier::kRaw) == 0) {
    *error = Quoted(mnemonic) + " lacks a type";
    return false;
  }
  return true;
}

}  // namespace smolvm::emulation::ptx
