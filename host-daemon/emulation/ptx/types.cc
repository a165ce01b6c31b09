#include "host-daemon/emulation/ptx/types.h"

#include <algorithm>

namespace smolvm::emulation::ptx {
namespace {

enum class Sort : uint8_t { kOther, kBits, kUnsigned, kSigned, kFloat };

struct TypeInfo {
  std::string_view name;
  uint8_t bits;
  Sort sort;
};

// In the order of enum Type.
constexpr TypeInfo kTypes[] = {
    {"", 0, Sort::kOther},        {"pred", 0, Sort::kOther},        {"b8", 8, Sort::kBits},
    {"b16", 16, Sort::kBits},     {"b32", 32, Sort::kBits},         {"b64", 64, Sort::kBits},
    {"b128", 128, Sort::kBits},   {"u8", 8, Sort::kUnsigned},       {"u16", 16, Sort::kUnsigned},
    {"u32", 32, Sort::kUnsigned}, {"u64", 64, Sort::kUnsigned},     {"s8", 8, Sort::kSigned},
    {"s16", 16, Sort::kSigned},   {"s32", 32, Sort::kSigned},       {"s64", 64, Sort::kSigned},
    {"f16", 16, Sort::kFloat},    {"bf16", 16, Sort::kFloat},       {"f32", 32, Sort::kFloat},
    {"f64", 64, Sort::kFloat},    {"f16x2", 32, Sort::kFloat},      {"bf16x2", 32, Sort::kFloat},
    {"f32x2", 64, Sort::kFloat},  {"u16x2", 32, Sort::kUnsigned},   {"s16x2", 32, Sort::kSigned},
    {"tf32", 32, Sort::kFloat},   {"e4m3", 8, Sort::kOther},        {"e5m2", 8, Sort::kOther},
    {"e4m3x2", 16, Sort::kOther}, {"e5m2x2", 16, Sort::kOther},     {"e4m3x4", 32, Sort::kOther},
    {"e5m2x4", 32, Sort::kOther}, {"e2m1", 4, Sort::kOther},        {"e2m3", 6, Sort::kOther},
    {"e3m2", 6, Sort::kOther},    {"e2m1x2", 8, Sort::kOther},      {"e2m3x2", 16, Sort::kOther},
    {"e3m2x2", 16, Sort::kOther}, {"e2m1x4", 16, Sort::kOther},     {"e2m3x4", 32, Sort::kOther},
    {"e3m2x4", 32, Sort::kOther}, {"ue8m0", 8, Sort::kOther},       {"ue8m0x2", 16, Sort::kOther},
    {"b1", 1, Sort::kBits},       {"u4", 4, Sort::kUnsigned},       {"s4", 4, Sort::kSigned},
    {"texref", 64, Sort::kOther}, {"samplerref", 64, Sort::kOther}, {"surfref", 64, Sort::kOther},
};
static_assert(std::size(kTypes) == static_cast<size_t>(Type::kSurfref) + 1);

const TypeInfo& InfoOf(Type type) { return kTypes[static_cast<size_t>(type)]; }

struct SpecialInfo {
  std::string_view name;
  Type type;
};

// In the order of enum Special; PTX ISA chapter 10.
constexpr SpecialInfo kSpecials[] = {
    {"%tid", Type::kU32},
    {"%ntid", Type::kU32},
    {"%laneid", Type::kU32},
    {"%warpid", Type::kU32},
    {"%nwarpid", Type::kU32},
    {"%ctaid", Type::kU32},
    {"%nctaid", Type::kU32},
    {"%smid", Type::kU32},
    {"%nsmid", Type::kU32},
    {"%gridid", Type::kU64},
    {"%is_explicit_cluster", Type::kPred},
    {"%clusterid", Type::kU32},
    {"%nclusterid", Type::kU32},
    {"%cluster_ctaid", Type::kU32},
    {"%cluster_nctaid", Type::kU32},
    {"%cluster_ctarank", Type::kU32},
    {"%cluster_nctarank", Type::kU32},
    {"%lanemask_eq", Type::kU32},
    {"%lanemask_le", Type::kU32},
    {"%lanemask_lt", Type::kU32},
    {"%lanemask_ge", Type::kU32},
    {"%lanemask_gt", Type::kU32},
    {"%clock", Type::kU32},
    {"%clock_hi", Type::kU32},
    {"%clock64", Type::kU64},
    {"%pm", Type::kU32},
    {"%pm_64", Type::kU64},
    {"%envreg", Type::kB32},
    {"%globaltimer", Type::kU64},
    {"%globaltimer_lo", Type::kU32},
    {"%globaltimer_hi", Type::kU32},
    {"%reserved_smem_offset_begin", Type::kB32},
    {"%reserved_smem_offset_end", Type::kB32},
    {"%reserved_smem_offset_cap", Type::kB32},
    {"%reserved_smem_offset_", Type::kB32},
    {"%total_smem_size", Type::kU32},
    {"%aggr_smem_size", Type::kU32},
    {"%dynamic_smem_size", Type::kU32},
    {"%current_graph_exec", Type::kU64},
};
static_assert(std::size(kSpecials) == static_cast<size_t>(Special::kCurrentGraphExec) + 1);

}  // namespace

unsigned BitsOf(Type type) { return InfoOf(type).bits; }
size_t BytesOf(Type type) {
  return type == Type::kPred ? 1 : (static_cast<size_t>(InfoOf(type).bits) + 7) / 8;
}
std::string_view NameOf(Type type) { return InfoOf(type).name; }

bool IsSigned(Type type) { return InfoOf(type).sort == Sort::kSigned; }
bool IsUnsigned(Type type) { return InfoOf(type).sort == Sort::kUnsigned; }
bool IsInteger(Type type) { return IsSigned(type) || IsUnsigned(type); }
bool IsBits(Type type) { return InfoOf(type).sort == Sort::kBits; }
bool IsFloat(Type type) { return InfoOf(type).sort == Sort::kFloat; }

std::string_view NameOf(StateSpace space) {
  constexpr std::string_view kNames[] = {"generic", "reg",    "const",           "global", "local",
                                         "param",   "shared", "shared::cluster", "tex"};
  static_assert(std::size(kNames) == static_cast<size_t>(StateSpace::kTex) + 1);
  return kNames[static_cast<size_t>(space)];
}

std::string_view NameOf(Special special) { return kSpecials[static_cast<size_t>(special)].name; }
Type TypeOf(Special special) { return kSpecials[static_cast<size_t>(special)].type; }

bool FindType(std::string_view name, Type* type) {
  const auto* found = std::ranges::find(kTypes, name, &TypeInfo::name);
  if (name.empty() || found == std::end(kTypes)) return false;
  *type = static_cast<Type>(found - kTypes);
  return true;
}

bool FindSpecial(std::string_view name, Special* special, unsigned* number) {
  const size_t digits = name.size() - (name.find_last_not_of("0123456789") + 1);
  std::string_view numbered = name;
  unsigned value = 0;
  *number = 0;
  // "%pm3_64"
  if (name.size() == 7 && name.starts_with("%pm") && name.ends_with("_64") && name[3] >= '0' &&
      name[3] <= '7') {
    *special = Special::kPm64;
    *number = static_cast<unsigned>(name[3] - '0');
    return true;
  }
  if (digits > 0 && digits <= 2) {
    for (const char digit : name.substr(name.size() - digits)) {
      value = value * 10 + static_cast<unsigned>(digit - '0');
    }
    numbered = name.substr(0, name.size() - digits);
  }
  for (size_t i = 0; i < std::size(kSpecials); ++i) {
    const auto candidate = static_cast<Special>(i);
    const bool is_numbered = candidate == Special::kPm || candidate == Special::kEnvreg ||
                             candidate == Special::kReservedSmemOffset;
    if (candidate == Special::kPm64) continue;
    if (is_numbered) {
      const unsigned count = candidate == Special::kEnvreg ? 32 : candidate == Special::kPm ? 8 : 2;
      if (digits == 0 || digits > 2 || numbered != kSpecials[i].name || value >= count) continue;
      *number = value;
    } else if (name != kSpecials[i].name) {
      continue;
    }
    *special = candidate;
    return true;
  }
  return false;
}

bool HasComponents(Special special) {
  switch (special) {
    case Special::kTid:
    case Special::kNtid:
    case Special::kCtaid:
    case Special::kNctaid:
    case Special::kClusterid:
    case Special::kNclusterid:
    case Special::kClusterCtaid:
    case Special::kClusterNctaid:
      return true;
    default:
      return false;
  }
}

}  // namespace smolvm::emulation::ptx
