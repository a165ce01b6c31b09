// From an image, or PTX sources, to one verified module: the front end as Program::Load and
// Program::Link use it.
#pragma once

#include <cuda.h>

#include <span>
#include <string_view>

#include "host-daemon/emulation/ptx/ir.h"
#include "host-daemon/emulation/ptx/parse.h"
#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {

// Functions that no module defines and the runtime provides (vprintf …) pass as resolved: the
// compiler refuses those that it does not have by name, when a kernel that calls them is compiled.
//
// On failure `log->error` says why, with line and token for a syntax error:
// CUDA_ERROR_INVALID_IMAGE, CUDA_ERROR_NO_BINARY_FOR_GPU (also for PTX whose .target is newer than
// the device), CUDA_ERROR_INVALID_PTX (also for undefined and doubly defined symbols),
// CUDA_ERROR_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_OUT_OF_MEMORY (a source beyond the limits in
// ptx/limits.h).
CUresult LoadModule(const void* image, const LoadOptions& options, JitLog* log,
                    ptx::Module* module);
// One source by itself, not yet linked.
CUresult ParsePtx(std::string_view name, std::string_view text, const LoadOptions& options,
                  JitLog* log, ptx::Module* module);
CUresult LinkModule(std::span<const Program::Input> inputs, const LoadOptions& options, JitLog* log,
                    ptx::Module* module);

// Whether the runtime has (or names, to refuse) a function that programs declare and never define.
bool IsDeviceBuiltin(std::string_view name);

CUresult ResultOf(ptx::Diagnostic::Code code);

}  // namespace smolvm::emulation
