#include "host-daemon/emulation/runtime/warp.h"

#include <algorithm>
#include <bit>

namespace smolvm::emulation {
namespace {

template <typename F>
void ForLanes(uint32_t mask, F f) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) f(std::countr_zero(rest));
}

// PTX ISA, shfl.sync: c packs the segment mask (bits 8-12) and the clamp value (bits 0-4).
void Shuffle(ShuffleMode mode, uint32_t mask, LaneSlot* lanes) {
  uint64_t source[kWarpSize];
  ForLanes(mask, [&](uint32_t i) { source[i] = lanes[i].value; });
  ForLanes(mask, [&](uint32_t i) {
    const uint32_t b = lanes[i].aux[0] & 31;
    const uint32_t clamp = lanes[i].aux[1] & 31;
    const uint32_t segment = (lanes[i].aux[1] >> 8) & 31;
    const int max_lane = static_cast<int>((i & segment) | (clamp & ~segment));
    const int min_lane = static_cast<int>(i & segment);
    int j = 0;
    bool in_range = false;
    switch (mode) {
      case ShuffleMode::kUp:
        j = static_cast<int>(i) - static_cast<int>(b);
        in_range = j >= max_lane;
        break;
      case ShuffleMode::kDown:
        j = static_cast<int>(i + b);
        in_range = j <= max_lane;
        break;
      case ShuffleMode::kBfly:
        j = static_cast<int>(i ^ b);
        in_range = j <= max_lane;
        break;
      case ShuffleMode::kIdx:
        j = min_lane | static_cast<int>(b & ~segment);
        in_range = j <= max_lane;
        break;
    }
    if (!in_range) j = static_cast<int>(i);
    // Reading a lane that does not take part is undefined (PTX ISA); it gets its own value here.
    const uint32_t from = (mask >> j) & 1 ? static_cast<uint32_t>(j) : i;
    lanes[i].value = source[from];
    lanes[i].flag = in_range;
  });
}

void Vote(VoteMode mode, uint32_t mask, LaneSlot* lanes) {
  uint32_t ballot = 0;
  ForLanes(mask, [&](uint32_t i) { ballot |= (lanes[i].aux[0] & 1) << i; });
  uint32_t result = ballot;
  switch (mode) {
    case VoteMode::kAll:
      result = ballot == mask;
      break;
    case VoteMode::kAny:
      result = ballot != 0;
      break;
    case VoteMode::kUni:
      result = ballot == mask || ballot == 0;
      break;
    case VoteMode::kBallot:
      break;
  }
  ForLanes(mask, [&](uint32_t i) { lanes[i].value = result; });
}

void MatchAny(uint32_t mask, LaneSlot* lanes) {
  uint32_t result[kWarpSize];
  ForLanes(mask, [&](uint32_t i) {
    result[i] = 0;
    ForLanes(mask, [&](uint32_t j) {
      result[i] |= static_cast<uint32_t>(lanes[i].value == lanes[j].value) << j;
    });
  });
  ForLanes(mask, [&](uint32_t i) { lanes[i].value = result[i]; });
}

// PTX ISA, match.sync.all: the mask when all operands are equal, else 0; the predicate says which.
void MatchAll(uint32_t mask, LaneSlot* lanes) {
  const uint64_t first = lanes[std::countr_zero(mask)].value;
  bool equal = true;
  ForLanes(mask, [&](uint32_t i) { equal = equal && lanes[i].value == first; });
  ForLanes(mask, [&](uint32_t i) {
    lanes[i].value = equal ? mask : 0;
    lanes[i].flag = equal;
  });
}

uint32_t Combine(ReduxOp op, uint32_t a, uint32_t b) {
  const auto sa = static_cast<int32_t>(a);
  const auto sb = static_cast<int32_t>(b);
  switch (op) {
    case ReduxOp::kAdd:
      return a + b;
    case ReduxOp::kMinU:
      return std::min(a, b);
    case ReduxOp::kMaxU:
      return std::max(a, b);
    case ReduxOp::kMinS:
      return static_cast<uint32_t>(std::min(sa, sb));
    case ReduxOp::kMaxS:
      return static_cast<uint32_t>(std::max(sa, sb));
    case ReduxOp::kAnd:
      return a & b;
    case ReduxOp::kOr:
      return a | b;
    case ReduxOp::kXor:
      return a ^ b;
  }
  return 0;
}

void Redux(ReduxOp op, uint32_t mask, LaneSlot* lanes) {
  const uint32_t first = std::countr_zero(mask);
  auto result = static_cast<uint32_t>(lanes[first].value);
  ForLanes(mask & (mask - 1), [&](uint32_t i) {
    result = Combine(op, result, static_cast<uint32_t>(lanes[i].value));
  });
  ForLanes(mask, [&](uint32_t i) { lanes[i].value = result; });
}

}  // namespace

void ComputeWarpOp(WarpOp op, uint32_t mode, uint32_t mask, LaneSlot* lanes) {
  if (mask == 0) return;
  switch (op) {
    case WarpOp::kSync:
      return;
    case WarpOp::kShuffle:
      return Shuffle(static_cast<ShuffleMode>(mode), mask, lanes);
    case WarpOp::kVote:
      return Vote(static_cast<VoteMode>(mode), mask, lanes);
    case WarpOp::kMatchAny:
      return MatchAny(mask, lanes);
    case WarpOp::kMatchAll:
      return MatchAll(mask, lanes);
    case WarpOp::kRedux:
      return Redux(static_cast<ReduxOp>(mode), mask, lanes);
    case WarpOp::kElect: {
      const uint32_t leader = std::countr_zero(mask);
      ForLanes(mask, [&](uint32_t i) {
        lanes[i].value = leader;
        lanes[i].flag = i == leader;
      });
      return;
    }
  }
}

}  // namespace smolvm::emulation
