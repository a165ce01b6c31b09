// Program of a build without LLVM: images are selected, parsed and verified, so that kernels,
// parameters and variables are known and variables can be read and written; no kernel can be
// compiled.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "host-daemon/emulation/device/attributes.h"
#include "host-daemon/emulation/image/load.h"
#include "host-daemon/emulation/runtime/program.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

KernelInfo Describe(const ptx::Module& module, const ptx::Function& function,
                    int compute_capability) {
  KernelInfo info;
  info.name = function.name;
  for (const ptx::Variable& param : function.params)
    info.params.push_back({param.offset, param.bytes});
  info.param_bytes = function.param_bytes;
  for (const ptx::Variable& variable : function.variables) {
    if (variable.space == ptx::StateSpace::kShared) info.static_shared_bytes += variable.bytes;
    if (variable.space == ptx::StateSpace::kLocal) info.local_bytes += variable.bytes;
  }
  for (const ptx::Variable& variable : module.variables)
    if (variable.space == ptx::StateSpace::kConst) info.const_bytes += variable.bytes;
  std::copy(function.required_block.begin(), function.required_block.end(), info.required_block);
  std::copy(function.max_block.begin(), function.max_block.end(), info.max_block);
  const auto& bound = function.max_block[0] != 0 ? function.max_block : function.required_block;
  if (bound[0] != 0) {
    const uint64_t threads = uint64_t{bound[0]} * std::max(1u, bound[1]) * std::max(1u, bound[2]);
    info.max_threads_per_block = static_cast<int>(std::min<uint64_t>(threads, kMaxThreadsPerBlock));
  }
  info.ptx_version = module.target;
  info.binary_version = compute_capability;
  return info;
}

class Listing : public Program {
 public:
  explicit Listing(Arena& arena) : arena_(arena) {}
  ~Listing() override {
    for (const uintptr_t block : blocks_) arena_.Free(block);
  }

  CUresult Fill(const ptx::Module& module, int compute_capability) {
    for (const ptx::Function& function : module.functions)
      if (function.is_entry && function.has_body)
        kernels_.push_back(Describe(module, function, compute_capability));
    std::vector<uintptr_t> addresses(module.variables.size());
    for (size_t i = 0; i < addresses.size(); ++i) {
      const CUresult result = Place(module.variables[i], &addresses[i]);
      if (result != CUDA_SUCCESS) return result;
    }
    for (size_t i = 0; i < addresses.size(); ++i)
      Relocate(module.variables[i], addresses, addresses[i]);
    return CUDA_SUCCESS;
  }

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  std::span<const VariableInfo> variables() const override { return variables_; }

  CUresult Compile(size_t kernel) override {
    log::Error("event=kernel_refused kernel={} reason=built-without-LLVM",
               log::Quote(kernels_[kernel].name));
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  CUresult Launch(size_t kernel, const LaunchConfig&, std::span<const std::byte>) override {
    return Compile(kernel);
  }

 private:
  CUresult Place(const ptx::Variable& variable, uintptr_t* address) {
    const bool global = variable.space == ptx::StateSpace::kGlobal;
    if ((!global && variable.space != ptx::StateSpace::kConst) || variable.bytes == 0)
      return CUDA_SUCCESS;
    *address =
        arena_.Allocate(variable.bytes, std::max<size_t>(variable.alignment, kAllocationAlignment));
    if (*address == 0) return CUDA_ERROR_OUT_OF_MEMORY;
    blocks_.push_back(*address);
    std::memcpy(reinterpret_cast<void*>(*address), variable.initial.data(),
                std::min<size_t>(variable.initial.size(), variable.bytes));
    variables_.push_back(
        {std::string(variable.name), *address, variable.bytes, !global, variable.is_managed});
    return CUDA_SUCCESS;
  }

  // Pointers to variables in initialisers. Those to functions stay 0: there is no code to point to.
  static void Relocate(const ptx::Variable& variable, const std::vector<uintptr_t>& addresses,
                       uintptr_t address) {
    for (const ptx::Relocation& relocation : variable.relocations) {
      if (address == 0 || relocation.symbol.kind != ptx::SymbolKind::kVariable) continue;
      const uint64_t value =
          (addresses[relocation.symbol.index] + static_cast<uint64_t>(relocation.addend)) >>
          relocation.shift;
      std::memcpy(reinterpret_cast<void*>(address + relocation.offset), &value,
                  std::min<size_t>(relocation.bytes, 8));
    }
  }

  Arena& arena_;
  std::vector<uintptr_t> blocks_;
  std::vector<KernelInfo> kernels_;
  std::vector<VariableInfo> variables_;
};

CUresult Make(const ptx::Module& module, const LoadOptions& options, Arena& arena,
              std::unique_ptr<Program>* program) {
  auto listing = std::make_unique<Listing>(arena);
  const CUresult result = listing->Fill(module, options.compute_capability);
  if (result == CUDA_SUCCESS) *program = std::move(listing);
  return result;
}

}  // namespace

CUresult Program::Load(const void* image, const LoadOptions& options, Arena& arena, JitLog* log,
                       std::unique_ptr<Program>* program) {
  ptx::Module module;
  const CUresult result = LoadModule(image, options, log, &module);
  return result == CUDA_SUCCESS ? Make(module, options, arena, program) : result;
}

CUresult Program::Link(std::span<const Input> inputs, const LoadOptions& options, Arena& arena,
                       JitLog* log, std::unique_ptr<Program>* program) {
  ptx::Module module;
  const CUresult result = LinkModule(inputs, options, log, &module);
  return result == CUDA_SUCCESS ? Make(module, options, arena, program) : result;
}

void FlushDeviceOutput() {}

}  // namespace smolvm::emulation
