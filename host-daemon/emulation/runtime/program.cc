#include <cstring>

#include "host-daemon/emulation/image/load.h"
#include "host-daemon/emulation/runtime/cache.h"
#include "host-daemon/emulation/runtime/program_impl.h"
#include "protocol/base/sha256.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

using ptx::StateSpace;
using ptx::SymbolKind;

bool InArena(const ptx::Variable& variable) {
  return variable.space == StateSpace::kGlobal || variable.space == StateSpace::kConst;
}

CUresult MakeProgram(ptx::Module module, const LoadOptions& options, Arena& arena, JitLog* log,
                     std::unique_ptr<Program>* program) {
  auto made = std::make_unique<ProgramImpl>(std::move(module), options, arena);
  const CUresult result = made->Prepare(log);
  if (result == CUDA_SUCCESS) *program = std::move(made);
  return result;
}

}  // namespace

CUresult Program::Load(const void* image, const LoadOptions& options, Arena& arena, JitLog* log,
                       std::unique_ptr<Program>* program) {
  JitLog unused;
  if (log == nullptr) log = &unused;
  ptx::Module module;
  const CUresult result = LoadModule(image, options, log, &module);
  if (result != CUDA_SUCCESS) return result;
  return MakeProgram(std::move(module), options, arena, log, program);
}

CUresult Program::Link(std::span<const Input> inputs, const LoadOptions& options, Arena& arena,
                       JitLog* log, std::unique_ptr<Program>* program) {
  JitLog unused;
  if (log == nullptr) log = &unused;
  ptx::Module module;
  const CUresult result = LinkModule(inputs, options, log, &module);
  if (result != CUDA_SUCCESS) return result;
  return MakeProgram(std::move(module), options, arena, log, program);
}

ProgramImpl::~ProgramImpl() {
  for (const uintptr_t address : allocations_) arena_.Free(address);
}

CUresult ProgramImpl::Prepare(JitLog* log) {
  call_targets_ = codegen::AddressTakenFunctions(module_);
  if (const CUresult result = AllocateVariables(log); result != CUDA_SUCCESS) return result;
  if (const CUresult result = InitialiseVariables(log); result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < module_.functions.size(); ++i) {
    if (module_.functions[i].is_entry && module_.functions[i].has_body)
      Describe(static_cast<uint32_t>(i), log);
  }
  return CheckLimits(log);
}

// What no device of ours has is refused when it is loaded, as ptxas does.
CUresult ProgramImpl::CheckLimits(JitLog* log) const {
  constexpr uint64_t kStaticShared = 48 << 10, kConstants = 64 << 10, kLocal = 512 << 10;
  const auto check = [&](const KernelInfo& kernel, const char* what, uint64_t bytes,
                         uint64_t most) {
    if (bytes <= most) return true;
    log->error +=
        fmt::format("entry function '{}' uses too much {} data ({:#x} bytes, {:#x} max)\n",
                    kernel.name, what, bytes, most);
    return false;
  };
  for (const KernelInfo& kernel : kernels_) {
    if (!check(kernel, "shared", kernel.static_shared_bytes, kStaticShared) ||
        !check(kernel, "local", kernel.local_bytes, kLocal) ||
        !check(kernel, "constant", kernel.const_bytes, kConstants)) {
      return CUDA_ERROR_INVALID_PTX;
    }
  }
  return CUDA_SUCCESS;
}

// Each space's variables lie in one allocation, so that a module with thousands of small constants
// stays small.
CUresult ProgramImpl::AllocateVariables(JitLog* log) {
  addresses_.assign(module_.variables.size(), 0);
  for (const StateSpace space : {StateSpace::kGlobal, StateSpace::kConst}) {
    constexpr uint64_t kMost = uint64_t{1} << 40;
    uint64_t bytes = 0;
    for (size_t i = 0; i < module_.variables.size(); ++i) {
      const ptx::Variable& variable = module_.variables[i];
      if (variable.space != space) continue;
      const uint64_t alignment = std::max<uint64_t>(variable.alignment, 16);
      bytes = (bytes + alignment - 1) / alignment * alignment;
      addresses_[i] = bytes;  // for now, the offset
      bytes += std::max<uint64_t>(variable.bytes, 1);
      if (bytes > kMost) {
        log->error += "out of memory: the module's variables need more than 1 TiB\n";
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
    if (bytes == 0) continue;
    const uintptr_t base = arena_.Allocate(bytes, 4096);
    if (base == 0) {
      log->error += fmt::format("out of memory: the module's variables need {} bytes\n", bytes);
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocations_.push_back(base);
    for (size_t i = 0; i < module_.variables.size(); ++i) {
      if (module_.variables[i].space == space) addresses_[i] += base;
    }
  }
  return CUDA_SUCCESS;
}

uint64_t ProgramImpl::AddressOf(ptx::Symbol symbol) const {
  if (symbol.kind == SymbolKind::kVariable) return addresses_[symbol.index];
  for (size_t i = 0; i < call_targets_.size(); ++i) {
    if (call_targets_[i] == symbol.index) {
      return codegen::kFunctionHandleBase + i * codegen::kFunctionHandleStride;
    }
  }
  return 0;
}

CUresult ProgramImpl::InitialiseVariables(JitLog* log) {
  for (size_t i = 0; i < module_.variables.size(); ++i) {
    const ptx::Variable& variable = module_.variables[i];
    if (!InArena(variable)) continue;
    auto* to = reinterpret_cast<std::byte*>(addresses_[i]);
    const size_t given = std::min<size_t>(variable.initial.size(), variable.bytes);
    if (given != 0) memcpy(to, variable.initial.data(), given);
    for (const ptx::Relocation& relocation : variable.relocations) {
      const uint64_t value =
          (AddressOf(relocation.symbol) + static_cast<uint64_t>(relocation.addend)) >>
          relocation.shift;
      if (relocation.bytes > 8 || relocation.offset + relocation.bytes > variable.bytes) {
        log->error += fmt::format("line {}: initialiser outside its variable\n", variable.line);
        return CUDA_ERROR_INVALID_PTX;
      }
      memcpy(to + relocation.offset, &value, relocation.bytes);  // little-endian
    }
    variables_.push_back({std::string(variable.name), addresses_[i], variable.bytes,
                          variable.space == StateSpace::kConst, variable.is_managed});
  }
  return CUDA_SUCCESS;
}

// What is refused whatever else is known of it is told when it is loaded: to cuFuncLoad and
// launches no program gives a buffer for reasons.
void ProgramImpl::Describe(uint32_t index, JitLog* log) {
  const ptx::Function& function = module_.functions[index];
  auto kernel = std::make_unique<Kernel>();
  KernelInfo info;
  info.name = function.name;
  for (const ptx::Variable& param : function.params)
    info.params.push_back({param.offset, param.bytes});
  info.param_bytes = function.param_bytes;
  const bool is_whole = codegen::AnalyseKernel(module_, index, &kernel->facts, &kernel->problem);
  if (!is_whole || !codegen::HasTranslation(module_, kernel->facts, &kernel->problem)) {
    log->error += fmt::format("kernel '{}' cannot run: {}\n", info.name, kernel->problem);
  }
  if (is_whole) {
    const codegen::KernelFacts& facts = kernel->facts;
    info.static_shared_bytes = facts.static_shared_bytes;
    info.local_bytes = facts.local_bytes;
    kernel->code.name = info.name;
    kernel->code.needs_fibres = facts.needs_fibres;
    kernel->code.is_coroutine = facts.is_coroutine;
    kernel->code.static_shared_bytes = facts.static_shared_bytes;
    kernel->code.local_bytes = facts.window_bytes;
    kernel->code.unbounded_stack = facts.unbounded_stack;
    kernel->code.variables = addresses_.data();
  }
  for (const VariableInfo& variable : variables_) {
    if (variable.is_constant) info.const_bytes += variable.size;
  }
  uint64_t most = 1024;  // threads
  for (int k = 0; k < 3; ++k) {
    info.required_block[k] = function.required_block[k];
    info.max_block[k] = function.max_block[k];
  }
  const auto volume = [](const auto& block) {
    uint64_t threads = 1;
    for (const uint32_t size : block) threads *= std::max(size, 1u);
    return threads;
  };
  if (function.required_block[0] != 0) most = std::min(most, volume(function.required_block));
  if (function.max_block[0] != 0) most = std::min(most, volume(function.max_block));
  info.max_threads_per_block = static_cast<int>(most);
  // No registers are allocated here: the limit the program asked for, or what common kernels use.
  info.num_regs = function.max_registers != 0 ? static_cast<int>(function.max_registers) : 32;
  info.ptx_version = module_.target;
  info.binary_version = options_.compute_capability;
  kernels_.push_back(std::move(info));
  compiled_.push_back(std::move(kernel));
}

// Everything that the object depends on: the sources, which kernel, the code generator and the
// arena.
std::string ProgramImpl::KeyOf(const Kernel& kernel, unsigned lanes) const {
  std::string content = codegen::TargetDescription();
  content += fmt::format(";arena {};lanes {};kernel {};source {}", arena_.device_bytes(), lanes,
                         kernel.facts.kernel, SourceDigest());
  return Sha256Of(content);
}

// Once for all kernels of a module: it may have thousands.
const std::string& ProgramImpl::SourceDigest() const {
  std::call_once(digest_once_, [this] {
    std::string content;
    for (const auto& source : module_.sources)
      content += fmt::format("{};", source->size()) + *source;
    source_digest_ = Sha256Of(content);
  });
  return source_digest_;
}

std::shared_ptr<codegen::LoadedCode> ProgramImpl::Obtain(const Kernel& kernel, unsigned lanes,
                                                         bool* compiled, std::string* error) const {
  CodeCache& cache = CodeCache::Get();
  const std::string key = KeyOf(kernel, lanes);
  const char* from = "memory";
  timespec begin{}, end{};
  clock_gettime(CLOCK_MONOTONIC, &begin);
  *compiled = true;
  std::shared_ptr<codegen::LoadedCode> loaded = cache.Find(key);
  if (loaded == nullptr) {
    codegen::CompiledKernel made;
    // What is on disk and does not load is made again.
    from = "disk";
    if (cache.Read(key, &made.object)) loaded.reset(codegen::LoadedCode::Load(made.object, error));
    if (loaded == nullptr) {
      from = "compiler";
      const codegen::CompileOptions options{arena_.device_bytes(), options_.compute_capability,
                                            lanes, options_.compile_limit_ms};
      *compiled = codegen::Compile(module_, kernel.facts, options, &made, error);
      if (!*compiled) return nullptr;
      cache.Write(key, made.object);
      loaded.reset(codegen::LoadedCode::Load(made.object, error));
    }
    if (loaded == nullptr) return nullptr;
    cache.Keep(key, loaded);
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  const double ms = static_cast<double>(end.tv_sec - begin.tv_sec) * 1e3 +
                    static_cast<double>(end.tv_nsec - begin.tv_nsec) * 1e-6;
  log::Info("event=kernel_compiled kernel={} instructions={} ms={:.1f} from={} fibres={} lanes={}",
            log::Quote(kernel.code.name), kernel.facts.instruction_count, ms, from,
            kernel.facts.needs_fibres, lanes);
  return loaded;
}

// Told at the first try; a program may try for ever.
CUresult ProgramImpl::Refuse(size_t index) {
  Kernel& kernel = *compiled_[index];
  if (!kernel.is_refused) {
    log::Error("event=kernel_refused kernel={} reason={}", log::Quote(kernels_[index].name),
               log::Quote(kernel.problem));
  }
  kernel.is_refused = true;
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult ProgramImpl::CompileLocked(size_t index) {
  Kernel& kernel = *compiled_[index];
  if (!kernel.problem.empty()) return Refuse(index);
  bool compiled = false;
  std::string error;
  kernel.loaded = Obtain(kernel, 1, &compiled, &error);
  if (kernel.loaded == nullptr) {
    if (!compiled && error != codegen::kProcessEnds) {
      kernel.problem = error;
      return Refuse(index);
    }
    log::Error("event=kernel_load_failed kernel={} reason={}", log::Quote(kernels_[index].name),
               log::Quote(error));
    return compiled ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_DEINITIALIZED;
  }
  kernel.code.function = kernel.loaded->function();
  AddVectorTier(index);
  kernel.ready.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

void ProgramImpl::AddVectorTier(size_t index) {
  Kernel& kernel = *compiled_[index];
  if (options_.tier == Tier::kScalar || !codegen::CanRunInLanes(module_, kernel.facts)) return;
  const unsigned lanes = codegen::LanesOfHost();
  // About what compiling takes: when the kernel has run for that long, it is worth it.
  constexpr int64_t kLeastNs = 10'000'000;
  const int64_t ns_an_instruction = kernel.facts.is_coroutine ? 800'000 : 300'000;
  const int64_t budget =
      kLeastNs + ns_an_instruction * static_cast<int64_t>(kernel.facts.instruction_count);
  kernel.code.vector_tier = std::make_unique<VectorTier>(lanes, budget, [this, &kernel, lanes]() {
    bool compiled = false;
    std::string error;
    kernel.loaded_wide = Obtain(kernel, lanes, &compiled, &error);
    if (kernel.loaded_wide != nullptr) return kernel.loaded_wide->function();
    // Nothing is lost: the kernel goes on one thread at a time.
    log::Warn("event=vector_tier_failed kernel={} reason={}", log::Quote(kernel.code.name),
              log::Quote(error));
    return KernelFunction{nullptr};
  });
  if (options_.tier == Tier::kVector || CodeCache::Get().Holds(KeyOf(kernel, lanes)))
    kernel.code.vector_tier->Make();
}

CUresult ProgramImpl::Compile(size_t index) {
  if (index >= compiled_.size()) return CUDA_ERROR_INVALID_VALUE;
  if (compiled_[index]->ready.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  std::lock_guard lock(mutex_);
  if (compiled_[index]->ready.load(std::memory_order_relaxed)) return CUDA_SUCCESS;
  return CompileLocked(index);
}

CUresult ProgramImpl::Launch(size_t index, const LaunchConfig& config,
                             std::span<const std::byte> params) {
  if (const CUresult result = Compile(index); result != CUDA_SUCCESS) return result;
  if (params.size() < kernels_[index].param_bytes) return CUDA_ERROR_INVALID_VALUE;
  return RunGrid(compiled_[index]->code, config, arena_, params);
}

}  // namespace smolvm::emulation
