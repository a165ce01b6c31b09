// The LLVM module of one kernel: its functions, the wrapper that runs threads, the table of call
// targets.
#include <llvm/IR/Verifier.h>
#include <llvm/TargetParser/Host.h>

#include <algorithm>

#include "host-daemon/emulation/codegen/emitter.h"

namespace smolvm::emulation::codegen {

V LoadContext(llvm::IRBuilder<>& b, V base, size_t offset, llvm::Type* type, bool invariant) {
  V address = b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), base, offset);
  llvm::LoadInst* load = b.CreateLoad(type, address);
  if (invariant)
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(b.getContext(), {}));
  return load;
}

void StoreContext(llvm::IRBuilder<>& b, V base, size_t offset, V value) {
  b.CreateStore(value, b.CreateConstInBoundsGEP1_64(b.getInt8Ty(), base, offset));
}

namespace {

bool HostHasAvx512() {
#if defined(__x86_64__)
  static const bool has = llvm::sys::getHostCPUFeatures().lookup("avx512f");
  return has;
#else
  return false;
#endif
}

}  // namespace

ModuleEmitter::ModuleEmitter(llvm::LLVMContext& context, const ptx::Module& source,
                             const KernelFacts& facts, const LanePlan* plan,
                             const CompileOptions& options)
    : context_(context),
      source_(source),
      facts_(facts),
      options_(options),
      plan_(plan),
      has_avx512_(HostHasAvx512()),
      module_(std::make_unique<llvm::Module>("kernel", context)),
      isolation_(source.variables.size()) {}

llvm::FunctionType* ModuleEmitter::HelperType(Helper helper) {
  const auto type_of = [&](char code) -> llvm::Type* {
    switch (code) {
      case 'i':
        return llvm::Type::getInt32Ty(context_);
      case 'l':
        return llvm::Type::getInt64Ty(context_);
      case 'f':
        return llvm::Type::getFloatTy(context_);
      case 'd':
        return llvm::Type::getDoubleTy(context_);
      case 'p':
        return ptr();
      default:
        return llvm::Type::getVoidTy(context_);
    }
  };
  const std::string_view signature = kHelperSignatures[static_cast<size_t>(helper)];
  std::vector<llvm::Type*> params;
  for (const char code : signature.substr(1)) params.push_back(type_of(code));
  return llvm::FunctionType::get(type_of(signature[0]), params, false);
}

namespace {

void SetCommonAttributes(llvm::Function* function) {
  function->addFnAttr(llvm::Attribute::NoUnwind);
  // Large frames touch each page in turn, so that they meet the stack's guard and cannot step over
  // it.
  function->addFnAttr("probe-stack", "inline-asm");
  function->addFnAttr("stack-probe-size", "4096");
}

}  // namespace

void ModuleEmitter::DeclareFunctions() {
  llvm::Type* i32 = llvm::Type::getInt32Ty(context_);
  llvm::Type* none = llvm::Type::getVoidTy(context_);
  for (const FunctionFacts& f : facts_.functions) {
    const bool is_kernel = f.index == facts_.kernel;
    const bool is_coroutine = is_kernel && facts_.is_coroutine;
    llvm::FunctionType* type = is_coroutine ? llvm::FunctionType::get(none, {ptr()}, false)
                               : is_kernel
                                   ? llvm::FunctionType::get(none, {ptr(), i32, i32, i32}, false)
                                   : llvm::FunctionType::get(none, {ptr(), ptr(), ptr()}, false);
    llvm::Function* function = llvm::Function::Create(
        type,
        is_coroutine ? llvm::GlobalValue::ExternalLinkage : llvm::GlobalValue::InternalLinkage,
        is_coroutine ? kKernelSymbol
        : is_kernel  ? "body"
                     : "function",
        *module_);
    SetCommonAttributes(function);
    function->addParamAttr(0, llvm::Attribute::NoUndef);
    function->addParamAttr(
        0, llvm::Attribute::getWithDereferenceableBytes(context_, sizeof(ThreadContext)));
    if (is_coroutine) {
      function->addFnAttr(llvm::Attribute::PresplitCoroutine);
    } else if (is_kernel) {
      function->addFnAttr(llvm::Attribute::AlwaysInline);
    }
    functions_.push_back(function);
  }
}

uint64_t ModuleEmitter::HandleOf(uint32_t function) const {
  const auto& list = facts_.address_taken;
  const auto found = std::find(list.begin(), list.end(), function);
  if (found == list.end()) return 0;
  return kFunctionHandleBase + static_cast<uint64_t>(found - list.begin()) * kFunctionHandleStride;
}

llvm::GlobalVariable* ModuleEmitter::CallTable() {
  if (call_table_ != nullptr) return call_table_;
  llvm::Type* i64 = llvm::Type::getInt64Ty(context_);
  auto* entry = llvm::StructType::get(context_, {ptr(), i64});
  std::vector<llvm::Constant*> entries;
  for (const uint32_t index : facts_.address_taken) {
    const ptx::Function& function = source_.functions[index];
    // Nothing calls what the kernel does not have: no layout has the number 0.
    const bool is_here = facts_.position.contains(index);
    llvm::Constant* target = is_here ? static_cast<llvm::Constant*>(FunctionAt(index))
                                     : llvm::ConstantPointerNull::get(ptr());
    const uint64_t layout = is_here ? layouts_.Of(function.returns, function.params) : 0;
    entries.push_back(
        llvm::ConstantStruct::get(entry, {target, llvm::ConstantInt::get(i64, layout)}));
  }
  auto* type = llvm::ArrayType::get(entry, entries.size());
  call_table_ = new llvm::GlobalVariable(*module_, type, true, llvm::GlobalValue::InternalLinkage,
                                         llvm::ConstantArray::get(type, entries), "call_table");
  return call_table_;
}

void ModuleEmitter::EmitAccessFault() {
  llvm::Type* i64 = llvm::Type::getInt64Ty(context_);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context_), {ptr(), i64, i64}, false);
  access_fault_ =
      llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, "access_fault", *module_);
  SetCommonAttributes(access_fault_);
  for (const auto attribute :
       {llvm::Attribute::NoReturn, llvm::Attribute::Cold, llvm::Attribute::NoInline}) {
    access_fault_->addFnAttr(attribute);
  }
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context_, "entry", access_fault_));
  V ctx = access_fault_->getArg(0);
  V address = access_fault_->getArg(1);
  V low = b.CreateAnd(address, b.CreateSub(access_fault_->getArg(2), b.getInt64(1)));
  V kind = b.CreateSelect(b.CreateICmpNE(low, b.getInt64(0)),
                          b.getInt32(static_cast<uint32_t>(FaultKind::kMisaligned)),
                          b.getInt32(static_cast<uint32_t>(FaultKind::kIllegalAddress)));
  V block = LoadContext(b, ctx, offsetof(ThreadContext, block_context), ptr(), true);
  V helpers = LoadContext(b, block, offsetof(BlockContext, helpers), ptr(), true);
  V helper =
      LoadContext(b, helpers, static_cast<size_t>(Helper::kFault) * sizeof(void*), ptr(), true);
  b.CreateCall(HelperType(Helper::kFault), helper, {ctx, kind, address});
  b.CreateUnreachable();
}

// On a fibre: one thread. Otherwise: every thread of the block, x fastest and several at once if
// there are lanes, in loops that LLVM sees as a whole.
void ModuleEmitter::EmitWrapper() {
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context_), {ptr()}, false);
  auto* wrapper =
      llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, kKernelSymbol, *module_);
  SetCommonAttributes(wrapper);
  llvm::IRBuilder<> b(llvm::BasicBlock::Create(context_, "entry", wrapper));
  V ctx = wrapper->getArg(0);
  llvm::Function* body = functions_[0];
  const auto tid = [&](unsigned k) { return offsetof(ThreadContext, tid) + 4 * k; };
  if (facts_.needs_fibres) {
    V x = LoadContext(b, ctx, tid(0), b.getInt32Ty(), true);
    V y = LoadContext(b, ctx, tid(1), b.getInt32Ty(), true);
    V z = LoadContext(b, ctx, tid(2), b.getInt32Ty(), true);
    b.CreateCall(body, {ctx, x, y, z});
    b.CreateRetVoid();
    return;
  }
  V block = LoadContext(b, ctx, offsetof(ThreadContext, block_context), ptr(), true);
  V index[3];
  llvm::BasicBlock* header[3];
  V bound[3];
  for (unsigned k = 0; k < 3; ++k) {
    bound[k] = LoadContext(b, block, offsetof(BlockContext, ntid) + 4 * k, b.getInt32Ty(), true);
  }
  llvm::PHINode* phi[3];
  for (int k = 2; k >= 0; --k) {
    llvm::BasicBlock* before = b.GetInsertBlock();
    header[k] = llvm::BasicBlock::Create(context_, "threads", wrapper);
    b.CreateBr(header[k]);
    b.SetInsertPoint(header[k]);
    phi[k] = b.CreatePHI(b.getInt32Ty(), 2);
    phi[k]->addIncoming(b.getInt32(0), before);
    index[k] = phi[k];
    StoreContext(b, ctx, tid(static_cast<unsigned>(k)), index[k]);
  }
  b.CreateCall(body, {ctx, index[0], index[1], index[2]});
  for (unsigned k = 0; k < 3; ++k) {
    // With several lanes the last step may go beyond the row's end.
    V next = b.CreateAdd(index[k], b.getInt32(k == 0 ? lanes() : 1), "", true, true);
    phi[k]->addIncoming(next, b.GetInsertBlock());
    llvm::BasicBlock* after = llvm::BasicBlock::Create(context_, "after", wrapper);
    b.CreateCondBr(b.CreateICmpULT(next, bound[k]), header[k], after);
    b.SetInsertPoint(after);
  }
  b.CreateRetVoid();
}

std::unique_ptr<llvm::Module> ModuleEmitter::Emit(std::string* error) {
  DeclareFunctions();
  EmitAccessFault();
  for (size_t k = 0; k < facts_.functions.size(); ++k) {
    FunctionEmitter emitter(*this, facts_.functions[k], functions_[k]);
    if (!emitter.Emit(error)) return nullptr;
  }
  if (!facts_.is_coroutine) EmitWrapper();
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(*module_, &stream)) {
    *error = "internal: " + problem;
    return nullptr;
  }
  if (std::string escape = FindEscape(*module_, isolation_); !escape.empty()) {
    *error = "internal: " + escape;
    return nullptr;
  }
  return std::move(module_);
}

}  // namespace smolvm::emulation::codegen
