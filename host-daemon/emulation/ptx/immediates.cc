#include "host-daemon/emulation/ptx/immediates.h"

#include <bit>

namespace smolvm::emulation::ptx {
namespace {

// PTX ISA, "bar, barrier": a block has 16 barriers; threads come to them in whole warps.
constexpr uint64_t kLastBarrier = 15;
constexpr uint64_t kWarpThreads = 32;
// PTX ISA, "bfe" and "bfi": positions and lengths of bit fields are 8-bit values.
constexpr uint64_t kLastBit = 255;
// PTX ISA, "pmevent"
constexpr uint64_t kLastEvent = 15;
constexpr uint64_t kEventMask = 0xffff;

const Operand* ImmediateAt(const Instruction& i, size_t index) {
  if (index >= i.operands.size()) return nullptr;
  const Operand& operand = i.operands[index];
  return operand.kind == Operand::Kind::kInteger ? &operand : nullptr;
}

std::string Token(const Operand& operand) {
  return "'" + std::to_string(static_cast<int64_t>(operand.bits)) + "'";
}

std::string CheckRange(const Instruction& i, size_t index, uint64_t most, const char* what) {
  const Operand* operand = ImmediateAt(i, index);
  if (operand == nullptr || operand->bits <= most) return "";
  return std::string(what) + " " + Token(*operand) + " is not in 0.." + std::to_string(most);
}

// The thread count that may follow the barrier's number.
std::string CheckThreadCount(const Instruction& i, size_t index) {
  const Operand* count = ImmediateAt(i, index);
  if (count == nullptr) return "";
  if (count->bits % kWarpThreads != 0) {
    return "thread count " + Token(*count) + " is no multiple of the warp size";
  }
  // An arrival's count is of other threads too, so it cannot mean "all that there are".
  if (i.opcode == Opcode::kBarArrive && count->bits == 0) return "thread count '0' is not allowed";
  return "";
}

std::string CheckBarrier(const Instruction& i, size_t number) {
  std::string error = CheckRange(i, number, kLastBarrier, "barrier number");
  // A reduction's last operand is its predicate.
  const bool has_count = i.opcode != Opcode::kBarRed || i.operands.size() == 4;
  if (error.empty() && has_count) error = CheckThreadCount(i, number + 1);
  return error;
}

std::string CheckBitField(const Instruction& i, size_t position) {
  std::string error = CheckRange(i, position, kLastBit, "bit position");
  return error.empty() ? CheckRange(i, position + 1, kLastBit, "bit length") : error;
}

std::string CheckAlignment(const Instruction& i) {
  const Operand* alignment = ImmediateAt(i, 2);
  if (alignment == nullptr || std::has_single_bit(alignment->bits)) return "";
  return "alignment " + Token(*alignment) + " is no power of two";
}

std::string CheckEvent(const Instruction& i) {
  const bool is_mask = i.text.ends_with(".mask");
  return CheckRange(i, 0, is_mask ? kEventMask : kLastEvent, is_mask ? "event mask" : "event");
}

// PTX ISA, "cp.async": 4, 8 or 16 bytes, past the first cache 16 only, and no more read than that.
std::string CheckAsyncCopy(const Instruction& i) {
  const Operand* size = ImmediateAt(i, 2);
  if (size == nullptr) return "";
  const bool past_first_cache = i.modifiers.cache == Cache::kCg;
  if (size->bits != 16 && (past_first_cache || (size->bits != 4 && size->bits != 8)))
    return "size " + Token(*size) + (past_first_cache ? " is not 16" : " is not 4, 8 or 16");
  return CheckRange(i, 3, size->bits, "source size");
}

// PTX ISA, "applypriority" and "discard": whole lines of the second cache, and nothing else yet.
std::string CheckLineSize(const Instruction& i) {
  const Operand* size = ImmediateAt(i, 1);
  return size == nullptr || size->bits == 128 ? "" : "size " + Token(*size) + " is not 128";
}

// PTX ISA, "mbarrier.test_wait": of a phase only the parity.
std::string CheckParity(const Instruction& i) {
  if (i.text.find(".parity") == std::string_view::npos) return "";
  return CheckRange(i, 2, 1, "parity");
}

// PTX ISA, "mbarrier.arrive": at least one arrival. The count follows the address, before which a
// destination may stand; with .expect_tx it is one of bytes.
std::string CheckArrivals(const Instruction& i) {
  if (i.text.find(".expect_tx") != std::string_view::npos) return "";
  for (size_t n = 1; n < i.operands.size(); ++n) {
    const Operand* count = ImmediateAt(i, n);
    if (i.operands[n - 1].kind == Operand::Kind::kAddress && count != nullptr && count->bits == 0)
      return "count '0' is not allowed";
  }
  return "";
}

}  // namespace

std::string CheckImmediates(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kBarSync:
    case Opcode::kBarArrive:
      return CheckBarrier(i, 0);
    case Opcode::kBarRed:
      return CheckBarrier(i, 1);
    case Opcode::kBfe:
      return CheckBitField(i, 2);
    case Opcode::kBfi:
      return CheckBitField(i, 3);
    case Opcode::kCpAsync:
      return CheckAsyncCopy(i);
    case Opcode::kDiscard:
    case Opcode::kApplypriority:
      return CheckLineSize(i);
    case Opcode::kMbarrierTestWait:
    case Opcode::kMbarrierTryWait:
      return CheckParity(i);
    case Opcode::kMbarrierArrive:
    case Opcode::kMbarrierArriveDrop:
      return CheckArrivals(i);
    case Opcode::kAlloca:
      return CheckAlignment(i);
    case Opcode::kPmevent:
      return CheckEvent(i);
    default:
      return "";
  }
}

}  // namespace smolvm::emulation::ptx
