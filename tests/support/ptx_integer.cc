// Integer arithmetic: PTX ISA 9.0, 9.7.1 and 9.7.2.
#include <algorithm>

#include "tests/support/ptx_evaluators.h"

namespace smolvm::ptx_interpreter {
namespace {

using emulation::ptx::Half;
using emulation::ptx::Opcode;
using Wide = __int128;
using UWide = unsigned __int128;

// A value of the instruction's type as a mathematical integer.
Wide ToInteger(Type type, uint64_t bits) {
  const unsigned width = BitsOf(type);
  if (IsSigned(type)) return SignExtend(bits, width);
  return static_cast<Wide>(Truncate(bits, width));
}

uint64_t Low(Wide value, unsigned width) { return Truncate(static_cast<uint64_t>(value), width); }

uint64_t Saturate(Wide value, unsigned width) {
  const Wide most = (static_cast<Wide>(1) << (width - 1)) - 1;
  return Low(std::clamp(value, -most - 1, most), width);
}

// add, addc and the additions of mad, and sub and subc by the complement: with carry in and out.
uint64_t AddWithCarry(uint64_t a, uint64_t b, bool carry_in, unsigned width, bool* carry_out) {
  const UWide sum =
      static_cast<UWide>(Truncate(a, width)) + Truncate(b, width) + (carry_in ? 1 : 0);
  *carry_out = (sum >> width) != 0;
  return Truncate(static_cast<uint64_t>(sum), width);
}

bool EvaluateSum(const Instruction& i, Sources s, Carry* carry, Value* value) {
  const unsigned width = BitsOf(i.type());
  const bool is_add = i.opcode == Opcode::kAdd || i.opcode == Opcode::kAddc;
  const bool with_carry = i.opcode == Opcode::kAddc || i.opcode == Opcode::kSubc;
  if (i.modifiers.sat) {
    const Wide a = ToInteger(i.type(), s[0]);
    const Wide b = ToInteger(i.type(), s[1]);
    value->bits = Saturate(is_add ? a + b : a - b, width);
    return true;
  }
  // As NVIDIA's assembler has it: a - b is a + ~b + 1, and the flag that sum's carry.
  const bool in = with_carry ? carry->flag : !is_add;
  bool out;
  value->bits = AddWithCarry(s[0], is_add ? s[1] : ~s[1], in, width, &out);
  if (i.modifiers.cc) carry->flag = out;
  return true;
}

// Lanes of u16x2 and s16x2.
bool EvaluateLanes(const Instruction& i, Sources s, Value* value) {
  const Type lane = i.type() == Type::kS16x2 ? Type::kS16 : Type::kU16;
  value->bits = 0;
  for (unsigned shift = 0; shift < 32; shift += 16) {
    const Wide a = ToInteger(lane, s[0] >> shift);
    const Wide b = ToInteger(lane, s[1] >> shift);
    Wide result;
    if (i.opcode == Opcode::kAdd) {
      result = a + b;
    } else if (i.opcode == Opcode::kMin) {
      result = std::min(a, b);
    } else if (i.opcode == Opcode::kMax) {
      result = std::max(a, b);
    } else {
      return false;
    }
    if (i.modifiers.relu) result = std::max<Wide>(result, 0);
    value->bits |= Low(result, 16) << shift;
  }
  return true;
}

uint64_t Half24(const Instruction& i, uint64_t a, uint64_t b) {
  const Wide x = IsSigned(i.type()) ? SignExtend(a, 24) : static_cast<Wide>(Truncate(a, 24));
  const Wide y = IsSigned(i.type()) ? SignExtend(b, 24) : static_cast<Wide>(Truncate(b, 24));
  return Low(i.modifiers.half == Half::kHi ? (x * y) >> 16 : x * y, 32);
}

bool EvaluateProduct(const Instruction& i, Sources s, Carry* carry, Value* value) {
  const unsigned width = BitsOf(i.type());
  const bool is_mad = i.opcode == Opcode::kMad || i.opcode == Opcode::kMadc;
  // 64 × 64 bits signed fits 128; unsigned needs the unsigned product.
  const Wide a = ToInteger(i.type(), s[0]);
  const Wide b = ToInteger(i.type(), s[1]);
  const UWide product = static_cast<UWide>(a) * static_cast<UWide>(b);
  if (i.modifiers.half == Half::kWide) {
    const auto wide = static_cast<uint64_t>(product);
    value->bits = Truncate(is_mad ? wide + s[2] : wide, 2 * width);
    return true;
  }
  const bool high = i.modifiers.half == Half::kHi;
  const UWide shifted = IsSigned(i.type()) ? static_cast<UWide>(static_cast<Wide>(product) >> width)
                                           : product >> width;
  const uint64_t part = Truncate(static_cast<uint64_t>(high ? shifted : product), width);
  if (!is_mad) {
    value->bits = part;
    return true;
  }
  if (i.modifiers.sat) {
    value->bits = Saturate(ToInteger(i.type(), part) + ToInteger(i.type(), s[2]), width);
    return true;
  }
  bool out;
  value->bits = AddWithCarry(part, s[2], i.opcode == Opcode::kMadc && carry->flag, width, &out);
  if (i.modifiers.cc) carry->flag = out;
  return true;
}

bool EvaluateProduct24(const Instruction& i, Sources s, Value* value) {
  value->bits = Half24(i, s[0], s[1]);
  if (i.opcode == Opcode::kMul24) return true;
  const Wide sum = ToInteger(i.type(), value->bits) + ToInteger(i.type(), s[2]);
  value->bits = i.modifiers.sat ? Saturate(sum, 32) : Low(sum, 32);
  return true;
}

// Division by zero is unspecified (9.7.1.8): all ones here.
uint64_t Divide(const Instruction& i, Wide a, Wide b, unsigned width) {
  if (i.opcode == Opcode::kDiv) return b == 0 ? Truncate(UINT64_MAX, width) : Low(a / b, width);
  return b == 0 ? Low(a, width) : Low(a % b, width);
}

// dp4a and dp2a: 9.7.1.23 and .24.
uint64_t DotProduct(const Instruction& i, Sources s) {
  const auto byte = [](Type type, uint64_t word, unsigned n) -> int64_t {
    const uint64_t bits = (word >> (8 * n)) & 0xFF;
    return IsSigned(type) ? SignExtend(bits, 8) : static_cast<int64_t>(bits);
  };
  const auto half = [](Type type, uint64_t word, unsigned n) -> int64_t {
    const uint64_t bits = (word >> (16 * n)) & 0xFFFF;
    return IsSigned(type) ? SignExtend(bits, 16) : static_cast<int64_t>(bits);
  };
  int64_t sum = 0;
  if (i.opcode == Opcode::kDp4a) {
    for (unsigned n = 0; n < 4; ++n) sum += byte(i.types[0], s[0], n) * byte(i.types[1], s[1], n);
  } else {
    const unsigned first = i.modifiers.half == Half::kHi ? 2 : 0;
    for (unsigned n = 0; n < 2; ++n) {
      sum += half(i.types[0], s[0], n) * byte(i.types[1], s[1], first + n);
    }
  }
  return Truncate(s[2] + static_cast<uint64_t>(sum), 32);
}

bool EvaluateSimple(const Instruction& i, Sources s, Value* value) {
  const unsigned width = BitsOf(i.type());
  const Wide a = ToInteger(i.type(), s[0]);
  const Wide b = s.size() > 1 ? ToInteger(i.type(), s[1]) : 0;
  switch (i.opcode) {
    case Opcode::kSad:
      value->bits = Truncate(s[2] + Low(a > b ? a - b : b - a, width), width);
      return true;
    case Opcode::kDiv:
    case Opcode::kRem:
      value->bits = Divide(i, a, b, width);
      return true;
    case Opcode::kAbs:
      value->bits = Low(a < 0 ? -a : a, width);
      return true;
    case Opcode::kNeg:
      value->bits = Low(-a, width);
      return true;
    case Opcode::kMin:
      value->bits =
          Low(i.modifiers.relu ? std::max<Wide>(std::min(a, b), 0) : std::min(a, b), width);
      return true;
    case Opcode::kMax:
      value->bits =
          Low(i.modifiers.relu ? std::max<Wide>(std::max(a, b), 0) : std::max(a, b), width);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool EvaluateInteger(const Instruction& i, Sources s, Carry* carry, Value* value) {
  if (i.opcode == Opcode::kDp4a || i.opcode == Opcode::kDp2a) {
    value->bits = DotProduct(i, s);
    return true;
  }
  if (!IsInteger(i.type())) {
    // addc.b32 and the like do not exist; add, sub … of .b types neither.
    return false;
  }
  if (i.type() == Type::kU16x2 || i.type() == Type::kS16x2) return EvaluateLanes(i, s, value);
  switch (i.opcode) {
    case Opcode::kAdd:
    case Opcode::kAddc:
    case Opcode::kSub:
    case Opcode::kSubc:
      return EvaluateSum(i, s, carry, value);
    case Opcode::kMul:
    case Opcode::kMad:
    case Opcode::kMadc:
      return EvaluateProduct(i, s, carry, value);
    case Opcode::kMul24:
    case Opcode::kMad24:
      return EvaluateProduct24(i, s, value);
    default:
      return EvaluateSimple(i, s, value);
  }
}

}  // namespace smolvm::ptx_interpreter
