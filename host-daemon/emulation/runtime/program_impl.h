// Program, over the PTX front end, the code generator and the scheduler.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host-daemon/emulation/codegen/compiler.h"
#include "host-daemon/emulation/ptx/ir.h"
#include "host-daemon/emulation/runtime/launch.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {

class ProgramImpl : public Program {
 public:
  ProgramImpl(ptx::Module module, const LoadOptions& options, Arena& arena)
      : module_(std::move(module)), options_(options), arena_(arena) {}
  ~ProgramImpl() override;

  // Allocates and fills the variables, and describes the kernels. What it returns, Load returns.
  CUresult Prepare(JitLog* log);

  std::span<const KernelInfo> kernels() const override { return kernels_; }
  std::span<const VariableInfo> variables() const override { return variables_; }
  CUresult Compile(size_t kernel) override;
  CUresult Launch(size_t kernel, const LaunchConfig& config,
                  std::span<const std::byte> params) override;

 private:
  struct Kernel {
    codegen::KernelFacts facts;
    std::string problem;      // why it cannot be compiled
    bool is_refused = false;  // and that it was logged
    std::atomic<bool> ready{false};
    std::shared_ptr<codegen::LoadedCode> loaded;
    std::shared_ptr<codegen::LoadedCode> loaded_wide;  // the vector tier's
    KernelCode code;
  };

  CUresult AllocateVariables(JitLog* log);
  CUresult InitialiseVariables(JitLog* log);
  uint64_t AddressOf(ptx::Symbol symbol) const;
  void Describe(uint32_t function, JitLog* log);
  CUresult CheckLimits(JitLog* log) const;
  // The key of a kernel's object: what it is made from, and by what.
  std::string KeyOf(const Kernel& kernel, unsigned lanes) const;
  const std::string& SourceDigest() const;
  // From memory, from disk or from the compiler; null with a message. `compiled` is false when the
  // compiler refused the kernel.
  std::shared_ptr<codegen::LoadedCode> Obtain(const Kernel& kernel, unsigned lanes, bool* compiled,
                                              std::string* error) const;
  CUresult CompileLocked(size_t index);
  CUresult Refuse(size_t index);
  void AddVectorTier(size_t index);

  const ptx::Module module_;
  const LoadOptions options_;
  Arena& arena_;
  std::vector<KernelInfo> kernels_;
  std::vector<VariableInfo> variables_;
  std::vector<uintptr_t> addresses_;  // by Module::variables index; 0 where there is none
  std::vector<uintptr_t> allocations_;
  std::vector<std::unique_ptr<Kernel>> compiled_;  // by kernels() index
  std::vector<uint32_t> call_targets_;
  mutable std::once_flag digest_once_;
  mutable std::string source_digest_;
  std::mutex mutex_;
};

}  // namespace smolvm::emulation
