// PTX IR to LLVM IR. Internal to codegen: the only header, with lane_builder.h and isolation.h,
// that includes LLVM's.
//
// ModuleEmitter makes the LLVM module of one kernel; FunctionEmitter makes one function of it.
// FunctionEmitter's methods are grouped by file: emit_function (control flow), emit_operand,
// emit_address, emit_checks, emit_memory, emit_atomic, emit_integer, emit_bits, emit_float,
// emit_convert, emit_move, emit_sync, emit_call; for several threads at once, emit_lanes and
// emit_lane_memory.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "host-daemon/emulation/codegen/analysis.h"
#include "host-daemon/emulation/codegen/call_layout.h"
#include "host-daemon/emulation/codegen/compiler.h"
#include "host-daemon/emulation/codegen/isolation.h"
#include "host-daemon/emulation/codegen/lane_builder.h"
#include "host-daemon/emulation/codegen/lanes.h"
#include "host-daemon/emulation/runtime/helpers.h"
#include "host-daemon/emulation/runtime/math.h"

namespace smolvm::emulation::codegen {

using V = llvm::Value*;

class ModuleEmitter {
 public:
  // `plan` is null for one thread at a time.
  ModuleEmitter(llvm::LLVMContext& context, const ptx::Module& source, const KernelFacts& facts,
                const LanePlan* plan, const CompileOptions& options);

  // Null, with a message, when something is not translated.
  std::unique_ptr<llvm::Module> Emit(std::string* error);

  llvm::LLVMContext& context() { return context_; }
  llvm::Module& module() { return *module_; }
  const ptx::Module& source() const { return source_; }
  const KernelFacts& facts() const { return facts_; }
  const CompileOptions& options() const { return options_; }
  // How to run several threads at once; null when they run one by one.
  const LanePlan* plan() const { return plan_; }
  unsigned lanes() const { return plan_ == nullptr ? 1 : options_.lanes; }
  // Whether the machine has AVX-512 F, whose instructions name their rounding.
  bool has_avx512() const { return has_avx512_; }
  Isolation& isolation() { return isolation_; }
  LayoutNumbers& layouts() { return layouts_; }

  llvm::Function* FunctionAt(uint32_t index) { return functions_[facts_.position.at(index)]; }
  llvm::FunctionType* HelperType(Helper helper);
  // Reports a bad access and does not return: (context, generic address, access size).
  llvm::Function* access_fault() { return access_fault_; }
  llvm::GlobalVariable* CallTable();
  size_t CallTableSize() const { return facts_.address_taken.size(); }
  // The handle of a function whose address is taken; 0 when it may not be called.
  uint64_t HandleOf(uint32_t function) const;

  llvm::PointerType* ptr() { return llvm::PointerType::get(context_, 0); }

 private:
  void DeclareFunctions();
  void EmitAccessFault();
  void EmitWrapper();

  llvm::LLVMContext& context_;
  const ptx::Module& source_;
  const KernelFacts& facts_;
  const CompileOptions& options_;
  const LanePlan* const plan_;
  const bool has_avx512_;
  std::unique_ptr<llvm::Module> module_;
  Isolation isolation_;
  LayoutNumbers layouts_;
  std::vector<llvm::Function*> functions_;
  llvm::Function* access_fault_ = nullptr;
  llvm::GlobalVariable* call_table_ = nullptr;
};

// Whether an access at a constant offset from the variable's beginning stays inside it and is
// aligned, however the variable is placed: then it needs no check.
bool StaysInside(const ptx::Variable& variable, int64_t offset, uint64_t bytes, uint64_t alignment);

// Fields of the two context structures; shared by FunctionEmitter and the wrapper.
V LoadContext(llvm::IRBuilder<>& b, V base, size_t offset, llvm::Type* type, bool invariant);
void StoreContext(llvm::IRBuilder<>& b, V base, size_t offset, V value);

class FunctionEmitter {
 public:
  FunctionEmitter(ModuleEmitter& module, const FunctionFacts& facts, llvm::Function* function);

  bool Emit(std::string* error);

  using Handler = void (FunctionEmitter::*)(const ptx::Instruction&);
  static Handler HandlerOf(ptx::Opcode opcode);

 private:
  using Operand = ptx::Operand;
  using Instruction = ptx::Instruction;
  using Type = ptx::Type;

  // ---- emit_function.cc ----
  void PrepareRegisters();
  void LoadContexts();
  bool KeepsFrame() const;
  void EnterFrame();
  void ClearParamVariables();
  void LeaveFrame();
  V LoadLocalUsed();
  void StoreLocalUsed(V bytes);
  void LoadRegisterParams();
  void CopyParamsToFrame();
  void EmitBlock(uint32_t block);
  void EmitInstruction(const Instruction& i);
  void EmitTerminator(uint32_t block, const Instruction& i);
  void EmitEnd(const Instruction& i);
  void YieldOnBackEdge(uint32_t block);
  void Return();
  void BeginCoroutine();
  void Suspend();
  void Refuse(const Instruction& i, const std::string& why = "");
  V GuardOf(const Instruction& i);

  // ---- emit_lanes.cc ----
  unsigned lanes() const { return m.lanes(); }
  llvm::Type* LaneVector(llvm::Type* element);
  V Counting(unsigned bits, uint64_t step);
  V MaskBits(V mask);
  V Any(V mask);
  V All(V mask);
  V Among(V mask, V lanes_too);
  V Lane(V value, V index);
  V WithLane(V value, V element, V index);
  V ActiveLanes();
  void NoteThread(V lane);
  V NoteFirstActive();
  void UnderAny(V mask, const std::function<void()>& body);
  void ForEachLane(V mask, const std::function<void(V lane)>& body);
  void EmitEach(const Instruction& i);
  V CallHelperForLanes(Helper helper, llvm::ArrayRef<V> arguments);
  void EmitForLanes(const Instruction& i);
  void Send(uint32_t block, V mask);
  void EmitEndForLanes(uint32_t block, const Instruction& i);
  void EmitBlockForLanes(uint32_t block);
  void EmitLaneBlocks();

  // ---- emit_operand.cc ----
  llvm::Type* RegisterType(uint32_t reg);
  V LoadRegister(uint32_t reg) { return LoadSlot(registers_[reg]); }
  V LoadSlot(V slot);
  void StoreRegister(uint32_t reg, V value);
  void StoreSlot(V slot, V value, bool is_temporary);
  llvm::Type* TypeFor(Type type);
  llvm::IntegerType* Int(unsigned bits) { return b.getIntNTy(bits); }
  V I32(uint64_t value) { return b.getInt32(static_cast<uint32_t>(value)); }
  V I64(uint64_t value) { return b.getInt64(value); }
  // The operand as a value of TypeFor(type). Floating-point reads may see a NaN that is not
  // canonical yet.
  V Read(const Operand& operand, Type type);
  // The operand's bits, as an integer of the type's width: what memory and integer instructions
  // see.
  V ReadBits(const Operand& operand, Type type);
  // Stores a result; integers are extended to the register's width by the type's signedness.
  void Write(const Operand& operand, V value, Type type);
  void WriteBits(const Operand& operand, V bits, Type type);
  V ReadRegisterBits(uint32_t reg, unsigned bits);
  V ReadPredicate(const Operand& operand);
  void WritePredicate(const Operand& operand, V value);
  V ReadSpecial(const Operand& operand);
  V ThreadIndex(unsigned component);
  V LinearThread();
  V LaneId();
  V ToBits(V value);
  V FromBits(V bits, Type type);
  V Resize(V value, unsigned bits, bool is_signed);
  void NoteFloatDefinitions();
  V Canonical(V value);
  bool CopiesAsFloat(const Operand& to, Type type) const;

  // ---- emit_address.cc ----
  V SymbolAddress(const Instruction& i, ptx::Symbol symbol, int64_t offset);
  V AddressValue(const Operand& address);
  V VariableAddress(uint32_t index);
  V GenericOf(V address, ptx::StateSpace space);
  void EmitCvta(const Instruction& i);
  void EmitIsspacep(const Instruction& i);
  void EmitMapa(const Instruction& i);

  // ---- emit_checks.cc ----
  enum class Use : uint8_t { kRead, kWrite };  // what is read and written is written
  struct Access {
    ptx::StateSpace space;
    unsigned bytes;  // of the whole access, which is also its alignment
    Use use;
    bool writes() const { return use == Use::kWrite; }
  };
  // Each branches to a fault, or refuses the kernel, when the address is bad.
  Checked Pointer(const Instruction& i, const Operand& address, Access access);
  Checked CheckedAt(V address, Access access);  // a 64-bit address in the access's space
  Checked ParamPointer(const Instruction& i, const Operand& address, Access access);
  Checked InFrame(uint64_t offset, uint64_t bytes);
  void FindCallBlocks();
  V CheckedTarget(const Instruction& i, V handle, const Signature& signature);
  Checked LaneOf(V slot, llvm::Type* element, V lane);
  V LoadLane(V slot, llvm::Type* element, V lane);
  void StoreLane(V slot, V value, V lane);
  Checked RowFrom(V first, V together, Access access, llvm::BasicBlock* outside);
  Checked ScatteredAt(V addresses, V mask, Access access, llvm::BasicBlock* outside);
  Checked At(Checked base, uint64_t offset);
  llvm::LoadInst* LoadFrom(Checked from, llvm::Type* type, uint64_t alignment);
  llvm::StoreInst* StoreTo(Checked to, V value, uint64_t alignment);
  void Copy(Checked to, Checked from, uint64_t bytes);
  void Zero(Checked at, uint64_t bytes);
  void FaultIf(V bad, V address, unsigned bytes);
  void RaiseIf(V bad, FaultKind kind);
  V Settled(V address);
  // The check itself.
  Checked MemoryAt(V generic, uint64_t bytes, bool is_writable);
  Checked Nowhere(const Instruction& i, const char* why);
  bool IsKnownGood(const Operand& address, Access access, ptx::StateSpace* space);
  std::pair<V, V> BoundsOf(V address, ptx::StateSpace space);
  V Outside(V offset, V bytes, unsigned log2);
  V OutsideWindows(V address, unsigned log2, bool writes);
  V IsInside(V address, unsigned count, Access access);

  // ---- emit_lane_memory.cc ----
  void EmitAccess(const Instruction& i, const Operand& operand, Access access,
                  const std::function<void(Checked row)>& together,
                  const std::function<void(Checked places, V mask)>& scattered);
  void EmitLoadForLanes(const Instruction& i);
  void EmitStoreForLanes(const Instruction& i);

  // ---- emit_memory.cc ----
  void EmitLd(const Instruction& i);
  void EmitSt(const Instruction& i);
  void EmitPrefetch(const Instruction& i);
  void EmitCreatepolicy(const Instruction& i);
  void EmitFence(const Instruction& i);
  void EmitCpAsync(const Instruction& i);
  void EmitNothing(const Instruction& i);
  V LoadBits(Checked from, unsigned bits, ptx::Order order, bool is_volatile);
  void StoreBits(Checked to, V value, ptx::Order order, bool is_volatile);

  // ---- emit_atomic.cc ----
  void EmitAtom(const Instruction& i);
  V Atomic(const Instruction& i, Checked at, Type type, V operand, V compare);
  V CasLoop(Checked at, unsigned bits, const std::function<V(V)>& next);
  Checked MbarrierAt(const Instruction& i, const Operand& address, Use use);
  V AtomicFloat(const Instruction& i, V old_bits, Type type, V operand_bits);
  V AtomicPacked(const Instruction& i, V old_bits, Type type, V operand_bits);
  void EmitMbarrierInit(const Instruction& i);
  void EmitCpAsyncArrive(const Instruction& i);
  void EmitMbarrierArrive(const Instruction& i);
  void EmitMbarrierTest(const Instruction& i);
  void EmitMbarrierPending(const Instruction& i);

  // ---- emit_integer.cc ----
  void EmitAdd(const Instruction& i);
  void EmitSub(const Instruction& i);
  void EmitMul(const Instruction& i);
  void EmitMad(const Instruction& i);
  void EmitCarryChain(const Instruction& i);
  void EmitMul24(const Instruction& i);
  void EmitSad(const Instruction& i);
  void EmitDiv(const Instruction& i);
  void EmitRem(const Instruction& i);
  void EmitAbs(const Instruction& i);
  void EmitNeg(const Instruction& i);
  void EmitMinMax(const Instruction& i);
  void EmitDp(const Instruction& i);
  void AddWithCarry(const Instruction& i, V a, V b_value, bool subtract, bool carry_in);
  V MulHigh(V x, V y, bool is_signed);
  V Product(const Instruction& i, Type type, Type* result);
  std::pair<V, V> SafeDivision(V x, V y, bool is_signed);
  V PackedInteger(const Instruction& i, const std::function<V(V, V, bool)>& lane);

  // ---- emit_bits.cc ----
  void EmitLogic(const Instruction& i);
  void EmitCnot(const Instruction& i);
  void EmitLop3(const Instruction& i);
  void EmitShift(const Instruction& i);
  void EmitShf(const Instruction& i);
  void EmitBfe(const Instruction& i);
  void EmitBfi(const Instruction& i);
  void EmitBfind(const Instruction& i);
  void EmitCount(const Instruction& i);
  void EmitBrev(const Instruction& i);
  void EmitBmsk(const Instruction& i);
  void EmitSzext(const Instruction& i);
  void EmitPrmt(const Instruction& i);
  void EmitFns(const Instruction& i);
  V LowMask(V count, unsigned width);
  V FieldLength(V position, V length, unsigned width);
  V ShiftLeft(V x, V count);
  V ShiftRight(V x, V count, bool is_signed);
  V Lookup2(unsigned table, V x, V y);

  // ---- emit_float.cc ----
  void EmitFloatBinary(const Instruction& i, FloatOp op);
  void EmitFma(const Instruction& i);
  void EmitFloatDiv(const Instruction& i);
  void EmitUnary(const Instruction& i);
  void EmitFloatMinMax(const Instruction& i, bool is_max);
  V Exp2(V x, bool flush);
  V ScaleByPower(V x, V n);
  V DirectedF32Native(FloatOp op, RoundMode mode, V x, V y, V z);
  void EmitTestp(const Instruction& i);
  void EmitCopysign(const Instruction& i);
  V Flush(V value);  // subnormal → zero of the same sign
  V FlushIf(const Instruction& i, V value) { return i.modifiers.ftz ? Flush(value) : value; }
  V Saturate(V value);  // [+0, 1], NaN → +0
  V FloatArithmetic(const Instruction& i, FloatOp op, V x, V y, V z);
  V DirectedF32(FloatOp op, RoundMode mode, V x, V y, V z);
  V Finish(const Instruction& i, V value);  // ftz and sat of a result
  V MinMax(V x, V y, bool is_max, bool propagate_nan);
  V IsNaN(V value) { return b.CreateFCmpUNO(value, value); }
  V IsSubnormal(V value);
  V CallHelper(Helper helper, std::initializer_list<V> arguments);
  V CallHelperOnce(Helper helper, llvm::ArrayRef<V> arguments);
  V Intrinsic(llvm::Intrinsic::ID id, std::initializer_list<V> arguments);
  static RoundMode ModeOf(ptx::Rounding rounding);
  // Halves: 16-bit patterns, worked on in f32.
  V HalfToFloat(V bits, bool is_bf16);
  V FloatToHalf(V value, bool is_bf16);
  void EmitHalf(const Instruction& i, const std::function<V(const std::vector<V>&, bool)>& scalar,
                size_t operands);
  static bool IsHalf(Type type);
  static bool IsBf16(Type type);
  void EmitHalfArithmetic(const Instruction& i, FloatOp op);

  // ---- emit_convert.cc ----
  void EmitCvt(const Instruction& i);
  void ConvertInteger(const Instruction& i, Type to, Type from);
  void ConvertIntegerToFloat(const Instruction& i, Type to, Type from);
  void ConvertFloatToInteger(const Instruction& i, Type to, Type from);
  void ConvertFloat(const Instruction& i, Type to, Type from);
  void ConvertPair(const Instruction& i, Type to);
  V FloatOperand(const Instruction& i, const Operand& operand, Type type);
  V RoundToIntegral(V value, ptx::Rounding rounding);
  V NarrowToHalf(const Instruction& i, V value, bool is_bf16);
  V ToTf32(const Instruction& i, V value);
  void EmitCvtPack(const Instruction& i);

  // ---- emit_move.cc ----
  void EmitMov(const Instruction& i);
  void EmitVectorMov(const Instruction& i);
  V ReadMoved(const Instruction& i, const Operand& from);
  void EmitSelp(const Instruction& i);
  void EmitSlct(const Instruction& i);
  void EmitSetp(const Instruction& i);
  void EmitSet(const Instruction& i);
  V Comparison(const Instruction& i, V x, V y, Type type);
  V Compared(const Instruction& i, const Operand& x, const Operand& y, Type type);
  V CombineBool(const Instruction& i, V value, const Operand& with);

  // ---- emit_video.cc ----
  void EmitVideo(const Instruction& i);
  void EmitVideoScalar(const Instruction& i, Type to, Type from_x, Type from_y);
  V VideoLane(const Instruction& i, V x, V y);
  V VideoClamp(V value, unsigned bits, bool is_signed);

  // ---- emit_sync.cc ----
  void EmitBarrier(const Instruction& i);
  void EmitBarRed(const Instruction& i);
  void EmitClusterWait(const Instruction& i);
  void EmitWarpSync(const Instruction& i);
  void EmitShfl(const Instruction& i);
  void EmitVote(const Instruction& i);
  void EmitMatch(const Instruction& i);
  void EmitRedux(const Instruction& i);
  void EmitActivemask(const Instruction& i);
  void EmitElect(const Instruction& i);
  V AfterMeeting(V result);
  void EmitNanosleep(const Instruction& i);

  // ---- emit_call.cc ----
  void EmitCall(const Instruction& i);
  void EmitBuiltin(const Instruction& i, Builtin builtin, const ptx::Call& call);
  V ArgumentValue(const Instruction& i, const Operand& operand, Type type);
  Checked CallParam(const Instruction& i, const Operand& operand, uint64_t bytes, Use use);
  uint64_t CommonBytes(const ptx::Variable& param, const Operand& operand) const;
  void EmitStack(const Instruction& i);

  llvm::BasicBlock* NewBlock(const char* name) { return llvm::BasicBlock::Create(c, name, fn); }

  ModuleEmitter& m;
  llvm::LLVMContext& c;
  const ptx::Function& f;
  const FunctionFacts& facts;
  llvm::Function* fn;
  LaneBuilder b;
  const bool is_kernel;
  const LanePlan* const plan_;  // null: one thread at a time
  std::string error_;

  V ctx = nullptr;
  V block_ctx = nullptr;
  V helpers = nullptr;
  Checked arguments_, results_;  // of a .func
  V shared_base = nullptr, shared_bytes = nullptr, local_base = nullptr, local_bytes = nullptr;
  V params_base = nullptr;
  V coroutine = nullptr;                   // its handle; null in other functions
  llvm::BasicBlock* suspended_ = nullptr;  // where a coroutine returns to its caller
  V frame = nullptr;  // offset of this call's frame in the thread's local window
  V carry = nullptr;
  std::vector<V> registers_;
  // How a 32-bit register gets floating-point values; see NoteFloatDefinitions().
  enum FloatUse : uint8_t { kArithmetic = 1, kRaw = 2 };
  std::vector<uint8_t> float_use_;
  std::vector<llvm::BasicBlock*> blocks_;
  ParamLayout param_layout_, return_layout_;

  // Of several lanes. Writes keep what inactive lanes have, unless nobody can look at it.
  std::vector<V> masks_;    // by block: the lanes that are at its beginning
  V block_mask_ = nullptr;  // the lanes that run the block
  V guard_ = nullptr;       // of the instruction, if it has one
  V lane_ = nullptr;        // while one lane's code is emitted: its number
  bool divergent_ = false;  // LanePlan::is_divergent of the block
  bool is_full_ = false;    // in code that runs only when all lanes are active
};

}  // namespace smolvm::emulation::codegen
