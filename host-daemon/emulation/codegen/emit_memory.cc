// ld, st, fences, asynchronous copies.
#include <llvm/IR/Intrinsics.h>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

using ptx::Instruction;
using ptx::Opcode;
using ptx::Order;
using ptx::Scope;
using ptx::StateSpace;

namespace {

// Stronger than weak: another thread may look on.
bool IsStrong(Order order) { return order != Order::kNone && order != Order::kWeak; }

llvm::AtomicOrdering OrderingOfLoad(Order order) {
  switch (order) {
    case Order::kAcquire:
    case Order::kAcqRel:
      return llvm::AtomicOrdering::Acquire;
    case Order::kSc:
      return llvm::AtomicOrdering::SequentiallyConsistent;
    default:
      return llvm::AtomicOrdering::Monotonic;
  }
}
llvm::AtomicOrdering OrderingOfStore(Order order) {
  switch (order) {
    case Order::kRelease:
    case Order::kAcqRel:
      return llvm::AtomicOrdering::Release;
    case Order::kSc:
      return llvm::AtomicOrdering::SequentiallyConsistent;
    default:
      return llvm::AtomicOrdering::Monotonic;
  }
}

}  // namespace

V FunctionEmitter::LoadBits(Checked from, unsigned bits, Order order, bool is_volatile) {
  llvm::LoadInst* load = LoadFrom(from, Int(bits), bits / 8);
  load->setVolatile(is_volatile);
  if (IsStrong(order) && bits <= 64) load->setAtomic(OrderingOfLoad(order));
  return load;
}

void FunctionEmitter::StoreBits(Checked to, V value, Order order, bool is_volatile) {
  const unsigned bits = value->getType()->getIntegerBitWidth();
  llvm::StoreInst* store = StoreTo(to, value, bits / 8);
  store->setVolatile(is_volatile);
  if (IsStrong(order) && bits <= 64) store->setAtomic(OrderingOfStore(order));
}

void FunctionEmitter::EmitLd(const Instruction& i) {
  const Type type = i.type();
  const unsigned size = static_cast<unsigned>(ptx::BytesOf(type));
  const unsigned total = size * i.modifiers.vector;
  const Operand& address = i.operands[1];
  if (type == Type::kPred || total > 32) return Refuse(i);
  const bool is_param = i.modifiers.space == StateSpace::kParam;
  const Access access{i.modifiers.space, total, Use::kRead};
  const Checked from = is_param ? ParamPointer(i, address, access) : Pointer(i, address, access);
  const bool is_volatile =
      i.modifiers.order == Order::kVolatile || i.modifiers.order == Order::kMmio;
  const bool invariant = is_param && is_kernel && address.symbol.kind == ptx::SymbolKind::kParam;
  std::vector<Operand> destinations{i.operands[0]};
  if (i.operands[0].kind == Operand::Kind::kVector) {
    const auto elements = i.ElementsOf(i.operands[0]);
    destinations.assign(elements.begin(), elements.end());
  }
  for (size_t k = 0; k < destinations.size(); ++k) {
    const Checked at = At(from, k * size);
    V value;
    if (is_param) {
      // A parameter of a call lies where its layout puts it.
      llvm::LoadInst* load = LoadFrom(at, Int(size * 8), 1);
      if (invariant)
        load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(c, {}));
      value = load;
    } else {
      value = LoadBits(at, size * 8, i.modifiers.order, is_volatile);
    }
    // Integers extend to a wider register by their sign; all else is zero-extended (PTX ISA 9.4.1).
    WriteBits(destinations[k], value, type);
  }
}

void FunctionEmitter::EmitSt(const Instruction& i) {
  const Type type = i.type();
  const unsigned size = static_cast<unsigned>(ptx::BytesOf(type));
  const unsigned total = size * i.modifiers.vector;
  if (type == Type::kPred || total > 32) return Refuse(i);
  const bool to_param = i.modifiers.space == StateSpace::kParam;
  const Operand& address = i.operands[0];
  const Access access{i.modifiers.space, total, Use::kWrite};
  const Checked to = to_param ? ParamPointer(i, address, access) : Pointer(i, address, access);
  const bool is_volatile =
      i.modifiers.order == Order::kVolatile || i.modifiers.order == Order::kMmio;
  std::vector<Operand> sources{i.operands[1]};
  if (i.operands[1].kind == Operand::Kind::kVector) {
    const auto elements = i.ElementsOf(i.operands[1]);
    sources.assign(elements.begin(), elements.end());
  }
  for (size_t k = 0; k < sources.size(); ++k) {
    const Checked at = At(to, k * size);
    V value = Resize(ReadBits(sources[k], type), size * 8, false);
    if (to_param) {
      StoreTo(at, value, 1);
    } else {
      StoreBits(at, value, i.modifiers.order, is_volatile);
    }
  }
}

// Hints. The address is not touched: prefetching a bad one is no fault. After `discard` the memory
// holds anything, so also what it held.
void FunctionEmitter::EmitPrefetch(const Instruction&) {}

// What a cache policy is made of is the device's own affair. Here all are this one, the whole of
// NVIDIA's evict_unchanged, because there is no cache to steer.
void FunctionEmitter::EmitCreatepolicy(const Instruction& i) {
  constexpr uint64_t kNothingChanges = 0x10f0'0000'0000'0000;
  WriteBits(i.operands[0], I64(kNothingChanges), Type::kB64);
}

void FunctionEmitter::EmitNothing(const Instruction&) {}

// A block stays on one OS thread, so ordering within it is the compiler's affair only.
void FunctionEmitter::EmitFence(const Instruction& i) {
  if (i.modifiers.scope == Scope::kCta && i.opcode != Opcode::kFenceProxy) {
    b.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent, llvm::SyncScope::SingleThread);
    return;
  }
  const bool weak = i.modifiers.order == Order::kAcqRel || i.modifiers.order == Order::kAcquire ||
                    i.modifiers.order == Order::kRelease;
  b.CreateFence(weak ? llvm::AtomicOrdering::AcquireRelease
                     : llvm::AtomicOrdering::SequentiallyConsistent);
}

// cp.async.{ca,cg}.shared.global [dst], [src], cp-size{, src-size}: done at once, which its rules
// allow.
void FunctionEmitter::EmitCpAsync(const Instruction& i) {
  const uint64_t size = i.operands[2].bits;
  const auto bytes = static_cast<unsigned>(size);
  const Checked to = Pointer(i, i.operands[0], {StateSpace::kShared, bytes, Use::kWrite});
  const Access source{StateSpace::kGlobal, bytes, Use::kRead};
  if (i.operands.size() == 3) {
    StoreTo(to, LoadFrom(Pointer(i, i.operands[1], source), Int(bytes * 8), bytes), bytes);
    return;
  }
  const Operand& last = i.operands[3];
  const bool is_predicate = last.is_register() && f.registers[last.index].type == Type::kPred;
  // ignore-src: a true predicate writes zeroes.
  V source_size = is_predicate ? b.CreateSelect(ReadPredicate(last), I32(0), I32(size))
                               : Read(last, Type::kU32);
  // Bytes beyond src-size are zero, and are not read.
  StoreTo(to, llvm::ConstantInt::get(Int(bytes * 8), 0), bytes);
  llvm::BasicBlock* copy = NewBlock("copy");
  llvm::BasicBlock* after = NewBlock("after");
  b.CreateCondBr(b.CreateICmpNE(source_size, I32(0)), copy, after);
  b.SetInsertPoint(copy);
  V value = LoadFrom(Pointer(i, i.operands[1], source), Int(bytes * 8), bytes);
  V kept = Resize(b.CreateShl(Intrinsic(llvm::Intrinsic::umin, {source_size, I32(size)}), 3),
                  bytes * 8, false);
  V all = llvm::ConstantInt::getSigned(Int(bytes * 8), -1);
  V full = b.CreateICmpUGE(source_size, I32(size));
  V mask = b.CreateSelect(
      full, all,
      b.CreateNot(
          b.CreateShl(all, b.CreateSelect(full, llvm::ConstantInt::get(Int(bytes * 8), 0), kept))));
  StoreTo(to, b.CreateAnd(value, mask), bytes);
  b.CreateBr(after);
  b.SetInsertPoint(after);
}

}  // namespace smolvm::emulation::codegen
