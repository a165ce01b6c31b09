// Which method translates which instruction. What is not here is refused by name.
#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Opcode;

FunctionEmitter::Handler FunctionEmitter::HandlerOf(Opcode opcode) {
  using E = FunctionEmitter;
  switch (opcode) {
    case Opcode::kAdd:
      return &E::EmitAdd;
    case Opcode::kSub:
      return &E::EmitSub;
    case Opcode::kAddc:
    case Opcode::kSubc:
      return &E::EmitCarryChain;
    case Opcode::kMul:
      return &E::EmitMul;
    case Opcode::kMad:
    case Opcode::kMadc:
      return &E::EmitMad;
    case Opcode::kMul24:
    case Opcode::kMad24:
      return &E::EmitMul24;
    case Opcode::kFma:
      return &E::EmitFma;
    case Opcode::kSad:
      return &E::EmitSad;
    case Opcode::kDiv:
      return &E::EmitDiv;
    case Opcode::kRem:
      return &E::EmitRem;
    case Opcode::kAbs:
      return &E::EmitAbs;
    case Opcode::kNeg:
      return &E::EmitNeg;
    case Opcode::kMin:
    case Opcode::kMax:
      return &E::EmitMinMax;
    case Opcode::kPopc:
    case Opcode::kClz:
      return &E::EmitCount;
    case Opcode::kBfind:
      return &E::EmitBfind;
    case Opcode::kFns:
      return &E::EmitFns;
    case Opcode::kBrev:
      return &E::EmitBrev;
    case Opcode::kBfe:
      return &E::EmitBfe;
    case Opcode::kBfi:
      return &E::EmitBfi;
    case Opcode::kSzext:
      return &E::EmitSzext;
    case Opcode::kBmsk:
      return &E::EmitBmsk;
    case Opcode::kDp4a:
    case Opcode::kDp2a:
      return &E::EmitDp;
    case Opcode::kTestp:
      return &E::EmitTestp;
    case Opcode::kCopysign:
      return &E::EmitCopysign;
    case Opcode::kRcp:
    case Opcode::kSqrt:
    case Opcode::kRsqrt:
    case Opcode::kSin:
    case Opcode::kCos:
    case Opcode::kLg2:
    case Opcode::kEx2:
    case Opcode::kTanh:
      return &E::EmitUnary;
    case Opcode::kSet:
      return &E::EmitSet;
    case Opcode::kSetp:
      return &E::EmitSetp;
    case Opcode::kSelp:
      return &E::EmitSelp;
    case Opcode::kSlct:
      return &E::EmitSlct;
    case Opcode::kAnd:
    case Opcode::kOr:
    case Opcode::kXor:
    case Opcode::kNot:
      return &E::EmitLogic;
    case Opcode::kCnot:
      return &E::EmitCnot;
    case Opcode::kLop3:
      return &E::EmitLop3;
    case Opcode::kShf:
      return &E::EmitShf;
    case Opcode::kShl:
    case Opcode::kShr:
      return &E::EmitShift;
    case Opcode::kMov:
      return &E::EmitMov;
    case Opcode::kShfl:
      return &E::EmitShfl;
    case Opcode::kPrmt:
      return &E::EmitPrmt;
    case Opcode::kLd:
    case Opcode::kLdu:
      return &E::EmitLd;
    case Opcode::kSt:
      return &E::EmitSt;
    case Opcode::kPrefetch:
    case Opcode::kPrefetchu:
    case Opcode::kApplypriority:
    case Opcode::kDiscard:
    case Opcode::kCpAsyncBulkPrefetch:
      return &E::EmitPrefetch;
    case Opcode::kCreatepolicy:
      return &E::EmitCreatepolicy;
    case Opcode::kIsspacep:
      return &E::EmitIsspacep;
    case Opcode::kCvta:
      return &E::EmitCvta;
    case Opcode::kCvt:
      return &E::EmitCvt;
    case Opcode::kCvtPack:
      return &E::EmitCvtPack;
    case Opcode::kMapa:
    case Opcode::kGetctarank:
      return &E::EmitMapa;
    case Opcode::kCpAsync:
      return &E::EmitCpAsync;
    // Asynchronous copies are done when issued, so there is nothing to wait for; dependent launches
    // keep their order.
    case Opcode::kCpAsyncCommitGroup:
    case Opcode::kCpAsyncWaitGroup:
    case Opcode::kCpAsyncWaitAll:
    case Opcode::kGriddepcontrol:
    case Opcode::kPmevent:
    case Opcode::kSetmaxnreg:
    case Opcode::kMembarProxy:
    case Opcode::kFenceMbarrierInit:
      return &E::EmitNothing;
    case Opcode::kCall:
      return &E::EmitCall;
    case Opcode::kBarSync:
    case Opcode::kBarArrive:
      return &E::EmitBarrier;
    case Opcode::kBarRed:
      return &E::EmitBarRed;
    case Opcode::kBarrierClusterArrive:
      return &E::EmitNothing;
    case Opcode::kBarrierClusterWait:
      return &E::EmitClusterWait;
    case Opcode::kBarWarpSync:
      return &E::EmitWarpSync;
    case Opcode::kMembar:
    case Opcode::kFence:
    case Opcode::kFenceProxy:
      return &E::EmitFence;
    case Opcode::kAtom:
    case Opcode::kRed:
      return &E::EmitAtom;
    case Opcode::kVote:
      return &E::EmitVote;
    case Opcode::kMatch:
      return &E::EmitMatch;
    case Opcode::kActivemask:
      return &E::EmitActivemask;
    case Opcode::kRedux:
      return &E::EmitRedux;
    case Opcode::kElect:
      return &E::EmitElect;
    case Opcode::kMbarrierInit:
    case Opcode::kMbarrierInval:
      return &E::EmitMbarrierInit;
    case Opcode::kCpAsyncMbarrierArrive:
      return &E::EmitCpAsyncArrive;
    case Opcode::kMbarrierArrive:
    case Opcode::kMbarrierArriveDrop:
      return &E::EmitMbarrierArrive;
    case Opcode::kMbarrierTestWait:
    case Opcode::kMbarrierTryWait:
      return &E::EmitMbarrierTest;
    case Opcode::kMbarrierPendingCount:
      return &E::EmitMbarrierPending;
    case Opcode::kStacksave:
    case Opcode::kStackrestore:
    case Opcode::kAlloca:
      return &E::EmitStack;
    case Opcode::kNanosleep:
      return &E::EmitNanosleep;
    case Opcode::kVadd:
    case Opcode::kVadd2:
    case Opcode::kVadd4:
    case Opcode::kVsub:
    case Opcode::kVsub2:
    case Opcode::kVsub4:
    case Opcode::kVabsdiff:
    case Opcode::kVabsdiff2:
    case Opcode::kVabsdiff4:
    case Opcode::kVmin:
    case Opcode::kVmin2:
    case Opcode::kVmin4:
    case Opcode::kVmax:
    case Opcode::kVmax2:
    case Opcode::kVmax4:
    case Opcode::kVset:
    case Opcode::kVset2:
    case Opcode::kVset4:
    case Opcode::kVavrg2:
    case Opcode::kVavrg4:
    case Opcode::kVshl:
    case Opcode::kVshr:
      return &E::EmitVideo;
    default:
      return nullptr;
  }
}

bool IsTranslated(Opcode opcode) {
  return FunctionEmitter::HandlerOf(opcode) != nullptr || ptx::EndsBlock(opcode);
}

bool HasTranslation(const ptx::Module& module, const KernelFacts& facts, std::string* error) {
  for (const FunctionFacts& function : facts.functions) {
    for (size_t k = 0; k < function.cfg.blocks.size(); ++k) {
      if (!function.cfg.reachable[k]) continue;
      for (uint32_t n = function.cfg.blocks[k].begin; n < function.cfg.blocks[k].end; ++n) {
        const ptx::Instruction& instruction = module.functions[function.index].body[n];
        if (IsTranslated(instruction.opcode)) continue;
        *error = Unsupported(instruction);
        return false;
      }
    }
  }
  return true;
}

std::string Unsupported(const ptx::Instruction& instruction) {
  return "unsupported PTX instruction `" + std::string(instruction.text) + "` (line " +
         std::to_string(instruction.line) + ")";
}

}  // namespace smolvm::emulation::codegen
