// LLVM: passes and code generation.
#include <llvm/ADT/SmallVector.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include <cstdlib>

#include "host-daemon/emulation/codegen/effort.h"
#include "host-daemon/emulation/codegen/emitter.h"
#include "host-daemon/emulation/codegen/large_stack.h"
#include "host-daemon/emulation/codegen/llvm_lease.h"

namespace smolvm::emulation::codegen {
namespace {

// Part of the cache's key: raise it whenever what is emitted changes.
constexpr const char* kEmitterRevision = "13";

// Enough for the measured ratios, and linear in the size of the kernel: promotion, folding,
// loop-invariant motion and redundancy elimination. No vectoriser: the thread loop is full of fault
// branches, which it refuses.
constexpr const char* kPasses =
    "always-inline,"
    "cgscc(inline),"
    "function(sroa,early-cse,simplifycfg<no-switch-range-to-icmp>,instcombine<no-verify-fixpoint>,"
    "simplifycfg,"
    "loop-mssa(loop-rotate,licm),"
    "gvn,instcombine<no-verify-fixpoint>,dse,"
    "loop-mssa(licm),loop(loop-idiom,indvars,loop-deletion),"
    "adce,simplifycfg)";

constexpr const char* kPlainPasses =
    "always-inline,"
    "cgscc(inline),"
    "function(sroa,early-cse,simplifycfg<no-switch-range-to-icmp>,instcombine<no-verify-fixpoint>,"
    "simplifycfg,gvn,instcombine<no-verify-fixpoint>,dse,adce,simplifycfg)";

// Of a kernel that is too large for those: what is left out is made by none.
constexpr const char* kQuickPasses = "always-inline";

// Around them, for kernels that are coroutines: split once values are in registers, so that frames
// hold only what lives across a wait.
constexpr const char* kBeforeCoroutines = "coro-early,";
constexpr const char* kSplit = ",cgscc(coro-split),coro-cleanup,globaldce";
constexpr const char* kAfterCoroutines =
    ",function(sroa,early-cse,instcombine<no-verify-fixpoint>,simplifycfg,adce)";

std::string Features() {
  std::string features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    if (!features.empty()) features += ",";
    features += feature.getValue() ? '+' : '-';
    features += feature.getKey();
  }
  return features;
}

void Optimise(llvm::Module& module, llvm::TargetMachine* machine, Effort effort,
              bool is_coroutine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::ModulePassManager passes;
  const bool is_quick = effort == Effort::kQuick;
  std::string text = is_quick ? kQuickPasses : effort == Effort::kPlain ? kPlainPasses : kPasses;
  if (is_coroutine) text = kBeforeCoroutines + text + kSplit + (is_quick ? "" : kAfterCoroutines);
  if (llvm::Error error = builder.parsePassPipeline(passes, text)) {
    llvm::report_fatal_error(std::move(error));  // the text above is wrong
  }
  passes.run(module, modules);
}

bool Generate(llvm::Module& module, llvm::TargetMachine* machine, Effort effort,
              std::string* object) {
  const bool is_quick = effort == Effort::kQuick;
  machine->setOptLevel(is_quick ? llvm::CodeGenOptLevel::None : llvm::CodeGenOptLevel::Less);
  machine->setFastISel(is_quick);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return false;
  passes.run(module);
  object->assign(bytes.begin(), bytes.end());
  return true;
}

// A function over vectors, so that LLVM makes the globals that the vector tier needs on the thread
// of the first launch, before another thread compiles (see LlvmLease).
void WarmUp(llvm::TargetMachine* machine) {
  llvm::LLVMContext context;
  llvm::Module module("warm_up", context);
  module.setTargetTriple(machine->getTargetTriple().str());
  module.setDataLayout(machine->createDataLayout());
  llvm::IRBuilder<> b(context);
  auto* type = llvm::FunctionType::get(b.getVoidTy(), {llvm::PointerType::get(context, 0)}, false);
  auto* function =
      llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, "warm_up", module);
  b.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function));
  auto* vector = llvm::FixedVectorType::get(b.getInt32Ty(), LanesOfHost());
  V value = b.CreateLoad(vector, function->getArg(0));
  value = b.CreateAnd(value, llvm::ConstantInt::get(vector, 0x7fff));
  b.CreateStore(value, function->getArg(0));
  b.CreateRetVoid();
  Optimise(module, machine, Effort::kFull, false);
  std::string object;
  Generate(module, machine, Effort::kFull, &object);
}

// One per process; used with an LlvmLease.
llvm::TargetMachine* Machine(std::string* error) {
  static llvm::TargetMachine* machine = nullptr;
  if (machine != nullptr) return machine;
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  const std::string triple = llvm::sys::getProcessTriple();
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, *error);
  if (target == nullptr) return nullptr;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // add and mul round each on their own
  options.TrapUnreachable = true;
  machine = target->createTargetMachine(triple, llvm::sys::getHostCPUName(), Features(), options,
                                        llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                        llvm::CodeGenOptLevel::Less, true);
  if (machine == nullptr) {
    *error = "LLVM has no code generator for this machine";
  } else if (LanesOfHost() > 1) {
    WarmUp(machine);
  }
  return machine;
}

}  // namespace

unsigned LanesOfHost() {
  static const unsigned lanes = [] {
    const auto features = llvm::sys::getHostCPUFeatures();
    const auto has = [&](const char* name) { return features.lookup(name); };
    if (!has("fma") || !has("avx2")) return 1u;
    return has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl") ? 16u : 8u;
  }();
  return lanes;
}

bool CanRunInLanes(const ptx::Module& module, const KernelFacts& facts) {
  LanePlan plan;
  return LanesOfHost() > 1 && PlanLanes(module, facts, &plan);
}

namespace {

bool CompileHere(const ptx::Module& source, const KernelFacts& facts, const CompileOptions& options,
                 CompiledKernel* compiled, std::string* error) {
  *error = TooMuchToEmit(facts, options.limit_ms);
  if (!error->empty()) return false;
  llvm::TargetMachine* machine = Machine(error);
  if (machine == nullptr) return false;
  llvm::LLVMContext context;
  LanePlan plan;
  const bool in_lanes = options.lanes > 1;
  if (in_lanes && !PlanLanes(source, facts, &plan)) {
    *error = "the kernel's threads must run one by one";
    return false;
  }
  ModuleEmitter emitter(context, source, facts, in_lanes ? &plan : nullptr, options);
  std::unique_ptr<llvm::Module> module = emitter.Emit(error);
  if (module == nullptr) return false;
  module->setTargetTriple(machine->getTargetTriple().str());
  module->setDataLayout(machine->createDataLayout());
  *error = TooMuchToCompile(*module, options.limit_ms);
  if (!error->empty()) return false;
  const Effort effort = EffortFor(*module);
  Optimise(*module, machine, effort, facts.is_coroutine);
  if (getenv("SMOLVM_CUDA_EMULATION_DUMP") != nullptr) module->print(llvm::errs(), nullptr);
  CutLongBlocks(*module);
  if (!Generate(*module, machine, effort, &compiled->object)) {
    *error = "LLVM cannot write objects for this machine";
    return false;
  }
  return true;
}

}  // namespace

bool Compile(const ptx::Module& source, const KernelFacts& facts, const CompileOptions& options,
             CompiledKernel* compiled, std::string* error) {
  const LlvmLease lease;
  if (!lease) {
    *error = kProcessEnds;
    return false;
  }
  bool is_compiled = false;
  const bool has_run = RunOnLargeStack(
      [&] { is_compiled = CompileHere(source, facts, options, compiled, error); }, error);
  return has_run && is_compiled;
}

std::string TargetDescription() {
  static const std::string description =
      std::string("emitter ") + kEmitterRevision + "; LLVM " LLVM_VERSION_STRING "; " +
      llvm::sys::getProcessTriple() + "; " + llvm::sys::getHostCPUName().str() + "; " + Features() +
      "; " + EffortSetting();
  return description;
}

}  // namespace smolvm::emulation::codegen
