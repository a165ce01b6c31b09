#include "host-daemon/emulation/codegen/isolation.h"

#include <llvm/ADT/SmallPtrSet.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/IR/Operator.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "host-daemon/emulation/runtime/context.h"
#include "host-daemon/emulation/runtime/helpers.h"

namespace smolvm::emulation::codegen {
namespace {

using llvm::cast;
using llvm::dyn_cast;
using llvm::isa;

// What a pointer points into.
struct Place {
  enum Kind { kNowhere, kSlot, kThread, kBlock, kHelpers, kVariables, kRegion };
  Kind kind = kNowhere;
  uint64_t bytes = 0;   // of the whole
  uint64_t offset = 0;  // in it
  bool is_writable = false;
};

bool HoldsPointers(const llvm::Type* type) { return type->isPtrOrPtrVectorTy(); }

// Fields of the contexts that generated code keeps up itself.
bool IsWritableField(Place::Kind kind, uint64_t offset, uint64_t bytes) {
  struct Field {
    Place::Kind kind;
    uint64_t offset;
    uint64_t bytes;
  };
  static constexpr std::array kFields = {
      Field{Place::kThread, offsetof(ThreadContext, tid), sizeof(ThreadContext::tid)},
      Field{Place::kThread, offsetof(ThreadContext, local_used), sizeof(ThreadContext::local_used)},
      Field{Place::kThread, offsetof(ThreadContext, spins), sizeof(ThreadContext::spins)},
      Field{Place::kThread, offsetof(ThreadContext, lane_at), sizeof(ThreadContext::lane_at)},
      Field{Place::kBlock, offsetof(BlockContext, arrived), sizeof(BlockContext::arrived)},
  };
  return std::ranges::any_of(kFields, [&](const Field& field) {
    return field.kind == kind && offset >= field.offset &&
           offset + bytes <= field.offset + field.bytes;
  });
}

class Judge {
 public:
  Judge(const llvm::Module& module, const Isolation& isolation)
      : module_(module), layout_(module.getDataLayout()), isolation_(isolation) {}

  std::string Run() {
    for (const llvm::GlobalVariable& variable : module_.globals()) {
      if (!variable.isConstant() || !variable.hasInitializer())
        Escape(variable, "a global variable");
    }
    for (const llvm::Function& function : module_.functions()) {
      for (const llvm::Instruction& i : llvm::instructions(function)) Look(i);
    }
    return std::move(problem_);
  }

 private:
  void Escape(const llvm::Value& value, const char* why) {
    if (!problem_.empty()) return;
    llvm::raw_string_ostream stream(problem_);
    stream << "generated code would leave its memory: " << why << ": " << value;
  }

  Place PlaceOf(const llvm::Value* pointer) const {
    uint64_t offset = 0;
    for (;;) {
      if (const auto* region = isolation_.RegionAt(pointer))
        return {Place::kRegion, region->bytes, offset, region->is_writable};
      const auto* gep = dyn_cast<llvm::GEPOperator>(pointer);
      if (gep == nullptr) break;
      llvm::APInt step(64, 0);
      if (!gep->accumulateConstantOffset(layout_, step) || step.isNegative()) return {};
      offset += step.getZExtValue();
      if (offset > UINT32_MAX) return {};
      pointer = gep->getPointerOperand();
    }
    if (const auto* slot = dyn_cast<llvm::AllocaInst>(pointer)) {
      const auto bytes = slot->getAllocationSize(layout_);
      if (!slot->isStaticAlloca() || !bytes || bytes->isScalable()) return {};
      return {Place::kSlot, bytes->getFixedValue(), offset, true};
    }
    if (const auto* argument = dyn_cast<llvm::Argument>(pointer)) {
      if (argument->getArgNo() != 0) return {};
      return {Place::kThread, sizeof(ThreadContext), offset, false};
    }
    if (const auto* load = dyn_cast<llvm::LoadInst>(pointer)) return PlaceNamedBy(*load, offset);
    return {};
  }

  // The pointers in the contexts.
  Place PlaceNamedBy(const llvm::LoadInst& load, uint64_t offset) const {
    const Place at = PlaceOf(load.getPointerOperand());
    if (at.kind == Place::kThread && at.offset == offsetof(ThreadContext, block_context))
      return {Place::kBlock, sizeof(BlockContext), offset, false};
    if (at.kind == Place::kBlock && at.offset == offsetof(BlockContext, helpers)) {
      return {Place::kHelpers, static_cast<uint64_t>(Helper::kCount) * sizeof(void*), offset,
              false};
    }
    if (at.kind == Place::kBlock && at.offset == offsetof(BlockContext, variables))
      return {Place::kVariables, isolation_.variables() * sizeof(uintptr_t), offset, false};
    return {};
  }

  void Access(const llvm::Instruction& i, const llvm::Value* pointer, uint64_t bytes, bool writes) {
    const Place place = PlaceOf(pointer);
    if (place.kind == Place::kNowhere) return Escape(i, "an address that was not checked");
    if (place.offset > place.bytes || bytes > place.bytes - place.offset)
      return Escape(i, "more bytes than were checked");
    if (writes && !place.is_writable && !IsWritableField(place.kind, place.offset, bytes))
      Escape(i, "a write to what may only be read");
  }
  void Access(const llvm::Instruction& i, const llvm::Value* pointer, const llvm::Type* type,
              bool writes) {
    Access(i, pointer, layout_.getTypeStoreSize(const_cast<llvm::Type*>(type)), writes);
  }

  void Load(const llvm::LoadInst& load) {
    Access(load, load.getPointerOperand(), load.getType(), false);
    if (!HoldsPointers(load.getType())) return;
    // Memory of the kernel's own holds numbers.
    const Place place = PlaceOf(load.getPointerOperand());
    const bool is_target = isolation_.BlocksOf(&load) != nullptr;
    if (!is_target && place.kind != Place::kThread && place.kind != Place::kBlock &&
        place.kind != Place::kHelpers) {
      Escape(load, "a pointer from memory");
    }
  }

  bool IsContext(const llvm::Value* value) const {
    const Place place = PlaceOf(value);
    return place.kind == Place::kThread && place.offset == 0;
  }

  void Block(const llvm::CallBase& call, unsigned argument, uint64_t bytes) {
    const Place place = PlaceOf(call.getArgOperand(argument));
    const bool fits = place.kind == Place::kRegion && place.offset <= place.bytes &&
                      bytes <= place.bytes - place.offset;
    if (!fits || !place.is_writable)
      Escape(call, "a block of arguments or results that does not fit");
  }

  void CallHelper(const llvm::CallBase& call, uint64_t offset) {
    const uint64_t index = offset / sizeof(void*);
    if (offset % sizeof(void*) != 0 || index >= static_cast<uint64_t>(Helper::kCount))
      return Escape(call, "no helper");
    const std::string_view signature = kHelperSignatures[index];
    const llvm::FunctionType* type = call.getFunctionType();
    bool fits = type->getNumParams() + 1 == signature.size() && !type->isVarArg() &&
                IsOfCode(type->getReturnType(), signature[0]);
    for (unsigned k = 0; fits && k < type->getNumParams(); ++k)
      fits = IsOfCode(type->getParamType(k), signature[k + 1]);
    if (!fits) return Escape(call, "a helper by another signature");
    for (unsigned k = 0; k < type->getNumParams(); ++k) {
      if (HoldsPointers(type->getParamType(k)) && !IsContext(call.getArgOperand(k)))
        Escape(call, "a pointer to a helper");
    }
    if (static_cast<Helper>(index) == Helper::kFrame) frames_.insert(&call);
  }

  static bool IsOfCode(const llvm::Type* type, char code) {
    switch (code) {
      case 'i':
        return type->isIntegerTy(32);
      case 'l':
        return type->isIntegerTy(64);
      case 'f':
        return type->isFloatTy();
      case 'd':
        return type->isDoubleTy();
      case 'p':
        return type->isPointerTy();
      default:
        return type->isVoidTy();
    }
  }

  void CallFunction(const llvm::CallBase& call, const Isolation::CallBlocks& blocks) {
    if (call.arg_size() != 3 || !call.getType()->isVoidTy()) return Escape(call, "a call");
    if (!IsContext(call.getArgOperand(0))) return Escape(call, "another thread's context");
    Block(call, 1, blocks.argument_bytes);
    Block(call, 2, blocks.result_bytes);
  }

  void Call(const llvm::CallBase& call) {
    const llvm::Value* target = call.getCalledOperand();
    if (const auto* intrinsic = dyn_cast<llvm::IntrinsicInst>(&call)) return Intrinsic(*intrinsic);
    if (!isa<llvm::CallInst>(call) || call.isInlineAsm() || call.hasOperandBundles())
      return Escape(call, "a call");
    if (const auto* blocks = isolation_.BlocksOf(target)) return CallFunction(call, *blocks);
    if (const auto* function = dyn_cast<llvm::Function>(target)) return CallOwn(call, *function);
    const auto* load = dyn_cast<llvm::LoadInst>(target);
    const Place place = load == nullptr ? Place() : PlaceOf(load->getPointerOperand());
    if (place.kind != Place::kHelpers) return Escape(call, "a call of what was not looked up");
    CallHelper(call, place.offset);
  }

  // The kernel's own body and the reporter of faults: they take the context and numbers.
  void CallOwn(const llvm::CallBase& call, const llvm::Function& function) {
    if (function.isDeclaration() || function.getFunctionType() != call.getFunctionType())
      return Escape(call, "a call of what is not the kernel's own");
    for (unsigned k = 0; k < call.arg_size(); ++k) {
      const bool is_pointer = HoldsPointers(call.getArgOperand(k)->getType());
      if (is_pointer && (k != 0 || !IsContext(call.getArgOperand(k))))
        Escape(call, "a pointer to a function");
    }
  }

  void Intrinsic(const llvm::IntrinsicInst& i) {
    switch (i.getIntrinsicID()) {
      case llvm::Intrinsic::memset:
      case llvm::Intrinsic::memcpy: {
        const auto& whole = cast<llvm::MemIntrinsic>(i);
        const auto* bytes = dyn_cast<llvm::ConstantInt>(whole.getLength());
        if (bytes == nullptr) return Escape(i, "a length that is not known");
        Access(i, whole.getRawDest(), bytes->getZExtValue(), true);
        if (const auto* copy = dyn_cast<llvm::MemTransferInst>(&i))
          Access(i, copy->getRawSource(), bytes->getZExtValue(), false);
        return;
      }
      case llvm::Intrinsic::masked_gather:
        return Access(i, i.getArgOperand(0), i.getType()->getScalarType(), false);
      case llvm::Intrinsic::masked_scatter:
        return Access(i, i.getArgOperand(1), i.getArgOperand(0)->getType()->getScalarType(), true);
      case llvm::Intrinsic::coro_begin:
        if (!frames_.contains(i.getArgOperand(1))) Escape(i, "a frame from elsewhere");
        return;
      case llvm::Intrinsic::coro_id:
      case llvm::Intrinsic::coro_size:
      case llvm::Intrinsic::coro_suspend:
      case llvm::Intrinsic::coro_end:
      case llvm::Intrinsic::readcyclecounter:
        return;
      default:
        if (!i.doesNotAccessMemory()) Escape(i, "an intrinsic");
        for (const llvm::Value* argument : i.args()) {
          if (HoldsPointers(argument->getType())) Escape(i, "a pointer to an intrinsic");
        }
    }
  }

  void Look(const llvm::Instruction& i) {
    using Op = llvm::Instruction;
    switch (i.getOpcode()) {
      case Op::Load:
        return Load(cast<llvm::LoadInst>(i));
      case Op::Store: {
        const auto& store = cast<llvm::StoreInst>(i);
        const llvm::Type* type = store.getValueOperand()->getType();
        if (HoldsPointers(type)) return Escape(i, "a pointer to memory");
        return Access(i, store.getPointerOperand(), type, true);
      }
      case Op::AtomicRMW: {
        const auto& atomic = cast<llvm::AtomicRMWInst>(i);
        return Access(i, atomic.getPointerOperand(), atomic.getType(), true);
      }
      case Op::AtomicCmpXchg: {
        const auto& atomic = cast<llvm::AtomicCmpXchgInst>(i);
        return Access(i, atomic.getPointerOperand(), atomic.getNewValOperand()->getType(), true);
      }
      case Op::Call:
        return Call(cast<llvm::CallInst>(i));
      case Op::Alloca:
        if (!cast<llvm::AllocaInst>(i).isStaticAlloca()) Escape(i, "stack of a size not known");
        return;
      case Op::IntToPtr:
        if (isolation_.RegionAt(&i) == nullptr) Escape(i, "an address that was not checked");
        return;
      case Op::GetElementPtr:  // looked at where it is used
      case Op::Br:
      case Op::Switch:
      case Op::Unreachable:
      case Op::Fence:
        return;
      case Op::IndirectBr:
      case Op::Invoke:
      case Op::CallBr:
      case Op::VAArg:
      case Op::PtrToInt:
      case Op::AddrSpaceCast:
        return Escape(i, "an instruction that kernels do not need");
      default:
        if (HoldsPointers(i.getType())) return Escape(i, "a pointer made of others");
        for (const llvm::Value* operand : i.operands()) {
          if (HoldsPointers(operand->getType())) return Escape(i, "a pointer as a value");
        }
    }
  }

  const llvm::Module& module_;
  const llvm::DataLayout& layout_;
  const Isolation& isolation_;
  // What the helper for frames of coroutines returned.
  llvm::SmallPtrSet<const llvm::Value*, 2> frames_;
  std::string problem_;
};

}  // namespace

std::string FindEscape(const llvm::Module& module, const Isolation& isolation) {
  return Judge(module, isolation).Run();
}

}  // namespace smolvm::emulation::codegen
