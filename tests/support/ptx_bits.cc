// Bits: PTX ISA 9.0, 9.7.1.14 to .22 (popc … bmsk), 9.7.8 (logic and shifts), prmt.
#include <algorithm>

#include "tests/support/ptx_evaluators.h"

namespace smolvm::ptx_interpreter {
namespace {

using emulation::ptx::Clamp;
using emulation::ptx::Direction;
using emulation::ptx::Opcode;
using emulation::ptx::Permute;

bool Bit(uint64_t bits, uint64_t n) { return ((bits >> n) & 1) != 0; }

uint64_t CountLeadingZeroes(uint64_t a, unsigned width) {
  uint64_t count = 0;
  while (count < width && !Bit(a, width - 1 - count)) ++count;
  return count;
}

uint64_t FindHighest(const Instruction& i, uint64_t a, unsigned width) {
  if (IsSigned(i.type()) && Bit(a, width - 1)) a = Truncate(~a, width);
  const uint64_t zeroes = CountLeadingZeroes(a, width);
  if (zeroes == width) return 0xFFFFFFFF;
  return i.modifiers.shiftamt ? zeroes : width - 1 - zeroes;
}

uint64_t Reverse(uint64_t a, unsigned width) {
  uint64_t result = 0;
  for (unsigned n = 0; n < width; ++n) {
    if (Bit(a, n)) result |= uint64_t{1} << (width - 1 - n);
  }
  return result;
}

uint64_t Extract(const Instruction& i, Sources s, unsigned width) {
  const uint64_t position = s[1] & 0xFF;
  const uint64_t length = s[2] & 0xFF;
  const uint64_t top = width - 1;
  const bool sign =
      IsSigned(i.type()) && length != 0 && Bit(s[0], std::min(position + length - 1, top));
  uint64_t result = 0;
  for (uint64_t n = 0; n <= top; ++n) {
    const bool bit = n < length && position + n <= top ? Bit(s[0], position + n) : sign;
    if (bit) result |= uint64_t{1} << n;
  }
  return result;
}

uint64_t Insert(Sources s, unsigned width) {
  const uint64_t position = s[2] & 0xFF;
  const uint64_t length = s[3] & 0xFF;
  uint64_t result = s[1];
  for (uint64_t n = 0; n < length && position + n < width; ++n) {
    const uint64_t mask = uint64_t{1} << (position + n);
    result = Bit(s[0], n) ? result | mask : result & ~mask;
  }
  return Truncate(result, width);
}

uint64_t Mask(const Instruction& i, uint64_t a, uint64_t b) {
  const bool clamps = i.modifiers.clamp == Clamp::kClamp;
  const uint64_t first = clamps ? std::min<uint64_t>(a, 32) : a & 31;
  const uint64_t count = clamps ? std::min<uint64_t>(b, 32) : b & 31;
  uint64_t result = 0;
  for (uint64_t n = first; n < std::min<uint64_t>(first + count, 32); ++n)
    result |= uint64_t{1} << n;
  return result;
}

uint64_t ExtendFrom(const Instruction& i, uint64_t a, uint64_t b) {
  if (i.modifiers.clamp == Clamp::kClamp && b >= 32) return a;
  const uint64_t count = b & 31;
  if (count == 0) return 0;
  const uint64_t low = Truncate(a, static_cast<unsigned>(count));
  if (!IsSigned(i.type())) return low;
  return Truncate(static_cast<uint64_t>(SignExtend(low, static_cast<unsigned>(count))), 32);
}

uint64_t FunnelShift(const Instruction& i, Sources s) {
  const uint64_t n = i.modifiers.clamp == Clamp::kWrap ? s[2] & 31 : std::min<uint64_t>(s[2], 32);
  const uint64_t joined = (Truncate(s[1], 32) << 32) | Truncate(s[0], 32);
  if (i.modifiers.direction == Direction::kRight) return Truncate(joined >> n, 32);
  return n == 32 ? Truncate(s[0], 32) : Truncate((joined << n) >> 32, 32);
}

uint64_t Shift(const Instruction& i, Sources s, unsigned width) {
  const uint64_t n = std::min<uint64_t>(Truncate(s[1], 32), width);
  if (i.opcode == Opcode::kShl) return n == 64 ? 0 : Truncate(s[0] << n, width);
  if (IsSigned(i.type())) {
    const int64_t a = SignExtend(s[0], width);
    return Truncate(static_cast<uint64_t>(a >> std::min<uint64_t>(n, 63)), width);
  }
  return n == 64 ? 0 : Truncate(s[0], width) >> n;
}

uint64_t Lop3(Sources s) {
  uint64_t result = 0;
  for (unsigned n = 0; n < 32; ++n) {
    const unsigned row = (Bit(s[0], n) ? 4 : 0) | (Bit(s[1], n) ? 2 : 0) | (Bit(s[2], n) ? 1 : 0);
    if (Bit(s[3], row)) result |= uint64_t{1} << n;
  }
  return result;
}

// The byte numbers that the four result bytes come from, most significant first.
struct Bytes {
  uint8_t from[4];
};

Bytes PermuteMode(Permute mode, unsigned n) {
  const auto b = [](unsigned x3, unsigned x2, unsigned x1, unsigned x0) {
    return Bytes{{static_cast<uint8_t>(x3), static_cast<uint8_t>(x2), static_cast<uint8_t>(x1),
                  static_cast<uint8_t>(x0)}};
  };
  switch (mode) {
    case Permute::kF4e:
      return b(n + 3, n + 2, n + 1, n);
    case Permute::kB4e:
      return b((n + 5) % 8, (n + 6) % 8, (n + 7) % 8, n);
    case Permute::kRc8:
      return b(n, n, n, n);
    case Permute::kEcl:
      return b(3, std::max(n, 2u), std::max(n, 1u), n);
    case Permute::kEcr:
      return b(n, std::min(n, 2u), std::min(n, 1u), 0);
    default:  // rc16
      return n % 2 == 0 ? b(1, 0, 1, 0) : b(3, 2, 3, 2);
  }
}

uint64_t Prmt(const Instruction& i, Sources s) {
  const uint64_t joined = (Truncate(s[1], 32) << 32) | Truncate(s[0], 32);
  const auto byte = [joined](unsigned n) { return (joined >> (8 * n)) & 0xFF; };
  uint64_t result = 0;
  for (unsigned n = 0; n < 4; ++n) {
    uint64_t value;
    if (i.modifiers.permute == Permute::kNone) {
      const uint64_t selector = (s[2] >> (4 * n)) & 15;
      value = byte(selector & 7);
      if (selector & 8) value = (value & 0x80) != 0 ? 0xFF : 0;
    } else {
      value = byte(PermuteMode(i.modifiers.permute, s[2] & 3).from[3 - n]);
    }
    result |= value << (8 * n);
  }
  return result;
}

}  // namespace

bool EvaluateBits(const Instruction& i, Sources s, Value* value) {
  const unsigned width = i.type() == Type::kPred ? 1 : BitsOf(i.type());
  switch (i.opcode) {
    case Opcode::kPopc:
      value->bits = static_cast<uint64_t>(__builtin_popcountll(Truncate(s[0], width)));
      return true;
    case Opcode::kClz:
      value->bits = CountLeadingZeroes(s[0], width);
      return true;
    case Opcode::kBfind:
      value->bits = FindHighest(i, s[0], width);
      return true;
    case Opcode::kBrev:
      value->bits = Reverse(s[0], width);
      return true;
    case Opcode::kBfe:
      value->bits = Extract(i, s, width);
      return true;
    case Opcode::kBfi:
      value->bits = Insert(s, width);
      return true;
    case Opcode::kBmsk:
      value->bits = Mask(i, s[0], s[1]);
      return true;
    case Opcode::kSzext:
      value->bits = ExtendFrom(i, s[0], s[1]);
      return true;
    case Opcode::kAnd:
      value->bits = Truncate(s[0] & s[1], width);
      return true;
    case Opcode::kOr:
      value->bits = Truncate(s[0] | s[1], width);
      return true;
    case Opcode::kXor:
      value->bits = Truncate(s[0] ^ s[1], width);
      return true;
    case Opcode::kNot:
      value->bits = Truncate(~s[0], width);
      return true;
    case Opcode::kCnot:
      value->bits = Truncate(s[0], width) == 0 ? 1 : 0;
      return true;
    case Opcode::kLop3:
      value->bits = Lop3(s);
      return i.operands.size() == 5;  // without the predicate form
    case Opcode::kShl:
    case Opcode::kShr:
      value->bits = Shift(i, s, width);
      return true;
    case Opcode::kShf:
      value->bits = FunnelShift(i, s);
      return true;
    case Opcode::kPrmt:
      value->bits = Prmt(i, s);
      return true;
    case Opcode::kMov:
      value->bits = Truncate(s[0], width);
      return true;
    case Opcode::kSelp:
      value->bits = Truncate(s[2] != 0 ? s[0] : s[1], width);
      return true;
    default:
      return false;
  }
}

}  // namespace smolvm::ptx_interpreter
