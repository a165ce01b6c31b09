#include "host-daemon/emulation/ptx/shape.h"

namespace smolvm::emulation::ptx {
namespace {

std::string_view ShapeOfAtomic(const Instruction& i) {
  return i.opcode == Opcode::kRed ? "at" : "tatt";
}

std::string_view ShapeOfBarrierReduction(const Instruction& i) {
  if (i.operands.size() < 4) return i.type() == Type::kPred ? "pup" : "uup";
  return i.type() == Type::kPred ? "puup" : "uuup";
}

std::string_view ShapeOfArithmetic(const Instruction& i) {
  const bool is_mixed = i.type_count > 1;  // add.f32.bf16 d, a, c
  switch (i.opcode) {
    case Opcode::kAdd:
    case Opcode::kSub:
      return is_mixed ? "tst" : "t";
    case Opcode::kFma:
      return is_mixed ? "tsst" : "t";
    case Opcode::kMul:
      return i.modifiers.half == Half::kWide ? "wtt" : "t";
    default:  // mad
      return i.modifiers.half == Half::kWide ? "wttw" : "t";
  }
}

}  // namespace

std::string_view ShapeOf(const Instruction& i) {
  switch (i.opcode) {
    case Opcode::kAdd:
    case Opcode::kSub:
    case Opcode::kFma:
    case Opcode::kMul:
    case Opcode::kMad:
      return ShapeOfArithmetic(i);
    case Opcode::kAtom:
    case Opcode::kRed:
      return ShapeOfAtomic(i);
    case Opcode::kBarRed:
      return ShapeOfBarrierReduction(i);
    case Opcode::kPopc:
    case Opcode::kClz:
    case Opcode::kBfind:
      return "ut";
    case Opcode::kBfe:
      return "ttuu";
    case Opcode::kBfi:
      return "tttuu";
    case Opcode::kSzext:
    case Opcode::kShl:
    case Opcode::kShr:
      return "ttu";
    case Opcode::kShf:
      return "tttu";
    case Opcode::kTestp:
      return "pt";
    case Opcode::kSet:
      return "tssp";
    case Opcode::kSetp:
      return "pttp";
    case Opcode::kSelp:
      return "tttp";
    case Opcode::kSlct:
      return "ttts";
    case Opcode::kLop3:
      return "ttttip";
    case Opcode::kMov:
      return "m";
    case Opcode::kShfl:
      return "ttu";
    case Opcode::kLd:
    case Opcode::kLdu:
      return "Ta";
    case Opcode::kSt:
      return "aT";
    case Opcode::kPrefetch:
    case Opcode::kPrefetchu:
      return "a";
    case Opcode::kApplypriority:
    case Opcode::kDiscard:
      return "ai";
    case Opcode::kCreatepolicy:
      return "t*";
    case Opcode::kIsspacep:
      return "px";
    case Opcode::kCvta:
      return "tA";
    case Opcode::kCvt:
      return "TSS*";
    case Opcode::kMapa:
      return "tAu";
    case Opcode::kGetctarank:
      return "ux";
    case Opcode::kVote:
      return "tpu";
    case Opcode::kMatch:
      return "utu";
    case Opcode::kRedux:
      return "ttu";
    case Opcode::kBra:
      return "l";
    case Opcode::kBrxIdx:
      return "ug";
    case Opcode::kCpAsyncWaitGroup:
      return "i";
    case Opcode::kMbarrierInit:
    case Opcode::kMbarrierExpectTx:
    case Opcode::kMbarrierCompleteTx:
      return "au";
    case Opcode::kMbarrierInval:
    case Opcode::kCpAsyncMbarrierArrive:
      return "a";
    case Opcode::kMbarrierPendingCount:
      return "u*";
    case Opcode::kAlloca:
      return "tti";
    // 32-bit whatever the types say.
    case Opcode::kFns:
    case Opcode::kBmsk:
    case Opcode::kDp4a:
    case Opcode::kDp2a:
    case Opcode::kPrmt:
    case Opcode::kCvtPack:
    case Opcode::kBarSync:
    case Opcode::kBarArrive:
    case Opcode::kBarWarpSync:
    case Opcode::kElect:
    case Opcode::kNanosleep:
      return "u";
    case Opcode::kIstypep:
      return "*";
    default:
      break;
  }
  const uint64_t modifiers = InfoOf(i.opcode).modifiers;
  if ((modifiers & modifier::kRaw) != 0) return "*";
  return (modifiers & modifier::kVideo) != 0 ? "u" : "t";
}

}  // namespace smolvm::emulation::ptx
