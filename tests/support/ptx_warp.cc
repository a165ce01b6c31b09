// What the threads of a warp do together: each waits until all that the mask names are at the same
// instruction. PTX ISA 9.0, 9.7.9.6 (shfl), 9.7.13.9 to .15.
#include <algorithm>

#include "tests/support/ptx_machine.h"

namespace smolvm::ptx_interpreter {

using emulation::ptx::Lane;
using emulation::ptx::Opcode;
using emulation::ptx::Reduction;
using VoteMode = emulation::ptx::Vote;

bool Block::WaitsForWarp(const Instruction& i) const {
  switch (i.opcode) {
    case Opcode::kShfl:
    case Opcode::kVote:
    case Opcode::kMatch:
    case Opcode::kRedux:
      if (!i.modifiers.sync) throw Failure("not covered: without .sync");
      return true;
    case Opcode::kBarWarpSync:
      return true;
    default:
      return false;
  }
}

uint32_t Block::MaskOf(Thread* t, const Instruction& i) {
  return static_cast<uint32_t>(Read(t, i, i.operands.back(), Type::kU32));
}

bool Block::ReleaseWarps() {
  bool any = false;
  for (uint32_t first = 0; first < threads_.size(); first += 32) {
    while (ReleaseWarp(first)) any = true;
  }
  return any;
}

// Completes one group of this warp, if one is complete.
bool Block::ReleaseWarp(uint32_t first) {
  const auto end = std::min<size_t>(first + 32, threads_.size());
  for (size_t n = first; n < end; ++n) {
    Thread& leader = threads_[n];
    if (leader.state != State::kAtWarp) continue;
    const Instruction& i = leader.instruction();
    const uint32_t mask = MaskOf(&leader, i);
    if ((mask >> leader.lane() & 1) == 0) throw Failure("the executing thread is not in the mask");
    std::vector<Thread*> lanes;
    bool complete = true;
    for (size_t m = first; m < end; ++m) {
      Thread& other = threads_[m];
      if ((mask >> other.lane() & 1) == 0 || other.state == State::kDone) continue;
      const bool here =
          other.state == State::kAtWarp && &other.instruction() == &i && MaskOf(&other, i) == mask;
      complete = complete && here;
      lanes.push_back(&other);
    }
    if (!complete) continue;
    Together(lanes, i);
    for (Thread* lane : lanes) {
      lane->state = State::kReady;
      ++lane->frame().pc;
    }
    return true;
  }
  return false;
}

void Block::Together(const std::vector<Thread*>& lanes, const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kShfl:
      return Shuffle(lanes, i);
    case Opcode::kVote:
      return Vote(lanes, i);
    case Opcode::kMatch:
      return Match(lanes, i);
    case Opcode::kRedux:
      return Reduce(lanes, i);
    default:
      return;
  }
}

void Block::Shuffle(const std::vector<Thread*>& lanes, const Instruction& i) {
  std::array<uint64_t, 32> values{};
  for (Thread* t : lanes) values[t->lane()] = Read(t, i, i.operands[1], Type::kB32);
  for (Thread* t : lanes) {
    const auto lane = static_cast<int>(t->lane());
    const auto b = static_cast<int>(Read(t, i, i.operands[2], Type::kU32) & 31);
    const auto c = static_cast<uint32_t>(Read(t, i, i.operands[3], Type::kU32));
    const int segment = static_cast<int>(c >> 8) & 31;
    const int clamp = static_cast<int>(c) & 31;
    const int most = (lane & segment) | (clamp & ~segment);
    const int least = lane & segment;
    int from = lane;
    bool valid = false;
    switch (i.modifiers.lane) {
      case Lane::kUp:
        from = lane - b;
        valid = from >= most;
        break;
      case Lane::kDown:
        from = lane + b;
        valid = from <= most;
        break;
      case Lane::kBfly:
        from = lane ^ b;
        valid = from <= most;
        break;
      default:
        from = least | (b & ~segment);
        valid = from <= most;
        break;
    }
    if (!valid) from = lane;
    Write(t, i.operands[0], Type::kB32, values[static_cast<size_t>(from)]);
    if (i.second_destination.kind != Operand::Kind::kNone) {
      Write(t, i.second_destination, Type::kPred, valid ? 1 : 0);
    }
  }
}

void Block::Vote(const std::vector<Thread*>& lanes, const Instruction& i) {
  uint64_t ballot = 0;
  uint64_t present = 0;
  for (Thread* t : lanes) {
    present |= uint64_t{1} << t->lane();
    if (Read(t, i, i.operands[1], Type::kPred) != 0) ballot |= uint64_t{1} << t->lane();
  }
  uint64_t result = ballot;
  if (i.modifiers.vote == VoteMode::kAll) result = ballot == present ? 1 : 0;
  if (i.modifiers.vote == VoteMode::kAny) result = ballot != 0 ? 1 : 0;
  if (i.modifiers.vote == VoteMode::kUni) result = ballot == present || ballot == 0 ? 1 : 0;
  for (Thread* t : lanes) Write(t, i.operands[0], i.type(), result);
}

void Block::Match(const std::vector<Thread*>& lanes, const Instruction& i) {
  uint64_t present = 0;
  std::array<uint64_t, 32> values{};
  for (Thread* t : lanes) {
    present |= uint64_t{1} << t->lane();
    values[t->lane()] = Read(t, i, i.operands[1], i.type());
  }
  for (Thread* t : lanes) {
    uint64_t same = 0;
    for (Thread* other : lanes) {
      if (values[other->lane()] == values[t->lane()]) same |= uint64_t{1} << other->lane();
    }
    const bool all = same == present;
    if (i.modifiers.vote == VoteMode::kAll) same = all ? present : 0;
    if (i.second_destination.kind != Operand::Kind::kNone) {
      Write(t, i.second_destination, Type::kPred, all ? 1 : 0);
    }
    Write(t, i.operands[0], Type::kB32, same);
  }
}

void Block::Reduce(const std::vector<Thread*>& lanes, const Instruction& i) {
  if (IsFloat(i.type())) throw Failure("not covered: redux of floats");
  const bool is_signed = IsSigned(i.type());
  const auto as_integer = [is_signed](uint64_t bits) -> int64_t {
    return is_signed ? SignExtend(bits, 32) : static_cast<int64_t>(bits);
  };
  uint64_t result = Read(lanes[0], i, i.operands[1], Type::kB32);
  for (size_t n = 1; n < lanes.size(); ++n) {
    const uint64_t value = Read(lanes[n], i, i.operands[1], Type::kB32);
    switch (i.modifiers.reduction) {
      case Reduction::kAdd:
        result = Truncate(result + value, 32);
        break;
      case Reduction::kMin:
        result = as_integer(value) < as_integer(result) ? value : result;
        break;
      case Reduction::kMax:
        result = as_integer(value) > as_integer(result) ? value : result;
        break;
      case Reduction::kAnd:
        result &= value;
        break;
      case Reduction::kOr:
        result |= value;
        break;
      case Reduction::kXor:
        result ^= value;
        break;
      default:
        throw Failure("not covered");
    }
  }
  for (Thread* t : lanes) Write(t, i.operands[0], Type::kB32, result);
}

}  // namespace smolvm::ptx_interpreter
