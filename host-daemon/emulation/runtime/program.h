// A loaded device program: what cuModuleLoadData and cuLibraryLoadData make, and what launches run.
//
// The emulation API (contexts, streams, modules; host-daemon/emulation/api) sits on this header;
// the PTX front end (emulation/image, emulation/ptx) and the kernel compiler (emulation/codegen)
// sit behind it.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host-daemon/emulation/device/arena.h"
#include "host-daemon/emulation/device/tier.h"

namespace smolvm::emulation {

struct ParamInfo {
  size_t offset;  // bytes, in the packed parameter block
  size_t size;
};

// What cuFuncGetAttribute reports of a kernel as compiled; see CUfunction_attribute.
struct KernelInfo {
  std::string name;
  std::vector<ParamInfo> params;
  size_t param_bytes = 0;
  int max_threads_per_block = 1024;
  size_t static_shared_bytes = 0;
  size_t const_bytes = 0;
  size_t local_bytes = 0;  // per thread
  int num_regs =
      0;  // virtual registers are not registers: what we report is documented in docs/emulation.md
  int ptx_version =
      0;  // 10 × major + minor of the image's virtual architecture (e.g. 75 for compute_75)
  int binary_version = 0;                  // the device's compute capability
  uint32_t required_block[3] = {0, 0, 0};  // .reqntid; 0 = none
  uint32_t max_block[3] = {0, 0, 0};       // .maxntid; 0 = none
};

struct VariableInfo {
  std::string name;
  uintptr_t address;  // in the arena
  size_t size;
  bool is_constant;
  bool is_managed;
};

struct LoadOptions {
  int compute_capability = 90;  // of the device: 10 × major + minor
  bool verbose = false;         // CU_JIT_LOG_VERBOSE
  Tier tier = Tier::kAuto;
  uint64_t compile_limit_ms = 0;  // for each kernel; 0: none
};

// What CU_JIT_INFO_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER receive.
struct JitLog {
  std::string info;
  std::string error;
};

struct LaunchConfig {
  uint32_t grid[3];
  uint32_t block[3];
  size_t dynamic_shared_bytes = 0;
  bool cooperative = false;
  // As CUDA counts: a lower number goes first. See Pool.
  int priority = 0;
  // CUDA limits of the launching context.
  size_t stack_bytes_per_thread = 1024;
  // 0 = no limit; a kernel that runs longer ends with CUDA_ERROR_LAUNCH_TIMEOUT.
  uint64_t timeout_ms = 0;
};

// Lifetime: device variables live in the arena as long as the program. Must not be destroyed while
// a launch runs. Threads: const functions and Launch may be called from any thread at once.
class Program {
 public:
  // `image` is what CUDA's loaders take: PTX text, a fatbin container, a fatbin wrapper, a cubin.
  // Its length is read from its own headers (the caller has checked that they stay inside its
  // buffer, when it came from a guest). CUDA_ERROR_INVALID_IMAGE, _INVALID_PTX, _NO_BINARY_FOR_GPU,
  // _UNSUPPORTED_PTX_VERSION, _OUT_OF_MEMORY …; the log says why.
  static CUresult Load(const void* image, const LoadOptions& options, Arena& arena, JitLog* log,
                       std::unique_ptr<Program>* program);
  // Links PTX modules (cuLink*, relocatable device code) into one program; names are for messages.
  struct Input {
    std::string name;
    std::string ptx;
  };
  static CUresult Link(std::span<const Input> inputs, const LoadOptions& options, Arena& arena,
                       JitLog* log, std::unique_ptr<Program>* program);

  virtual ~Program() = default;

  virtual std::span<const KernelInfo> kernels() const = 0;
  virtual std::span<const VariableInfo> variables() const = 0;

  // Compiles a kernel if it is not compiled yet (CU_MODULE_EAGER_LOADING, cuFuncLoad). Index into
  // kernels().
  virtual CUresult Compile(size_t kernel) = 0;

  // Runs a whole grid and returns when it has ended. Called on the stream's thread; uses the shared
  // pool of all cores. `params` is packed as KernelInfo::params says. CUDA_SUCCESS, or the launch's
  // fault: _ILLEGAL_ADDRESS, _MISALIGNED_ADDRESS, _ASSERT, _ILLEGAL_INSTRUCTION, _LAUNCH_FAILED,
  // _LAUNCH_TIMEOUT, _HARDWARE_STACK_ERROR … CUDA_ERROR_NOT_SUPPORTED when the kernel holds an
  // instruction that is not translated (logged by name).
  virtual CUresult Launch(size_t kernel, const LaunchConfig& config,
                          std::span<const std::byte> params) = 0;
};

// Writes what kernels have printed so far to this process's stdout, in order. Called at every
// synchronisation.
void FlushDeviceOutput();

// The most threads of one kernel that a multiprocessor of the emulated device holds at once, and
// the shared memory it has, live with the device's attributes: see emulation/device/attributes.h.

}  // namespace smolvm::emulation
