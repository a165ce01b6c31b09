#include "host-daemon/emulation/image/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "host-daemon/emulation/image/select.h"
#include "host-daemon/emulation/ptx/link.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

CUresult Refuse(const ptx::Diagnostic& diagnostic, std::string_view name, JitLog* log) {
  const CUresult result = ResultOf(diagnostic.code);
  const std::string message = fmt::format("{}: error: {}", name, diagnostic.message);
  if (log != nullptr) log->error += message + "\n";
  log::Error("event=ptx_refused code={} reason={}", static_cast<int>(result), log::Quote(message));
  return result;
}

// PTX for a newer device may use what this one lacks.
bool SuitsDevice(const ptx::Module& module, int compute_capability) {
  switch (module.target_suffix) {
    case 'a':
      return module.target == compute_capability;
    case 'f':
      return module.target / 10 == compute_capability / 10 && module.target <= compute_capability;
    default:
      return module.target <= compute_capability;
  }
}

CUresult CheckComplete(const ptx::Module& module, std::string_view name, JitLog* log) {
  ptx::Diagnostic diagnostic;
  if (ptx::CheckResolved(module, IsDeviceBuiltin, &diagnostic)) return CUDA_SUCCESS;
  return Refuse(diagnostic, name, log);
}

}  // namespace

CUresult ResultOf(ptx::Diagnostic::Code code) {
  switch (code) {
    case ptx::Diagnostic::Code::kUnsupportedVersion:
    case ptx::Diagnostic::Code::kUnsupportedTarget:
      return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    case ptx::Diagnostic::Code::kTooLarge:
      return CUDA_ERROR_OUT_OF_MEMORY;
    default:
      return CUDA_ERROR_INVALID_PTX;
  }
}

bool IsDeviceBuiltin(std::string_view name) {
  // What compilers call without defining it: crt/device_runtime_api.h and the CUDA C++ Programming
  // Guide.
  constexpr std::string_view kNames[] = {"vprintf", "__assertfail", "__assert_fail",
                                         "malloc",  "free",         "__nv_aligned_device_malloc"};
  if (std::ranges::find(kNames, name) != std::end(kNames)) return true;
  // The device runtime (dynamic parallelism, cooperative groups): cudaLaunchDeviceV2,
  // cudaGetParameterBufferV2, cudaCGGetIntrinsicHandle …
  return name.starts_with("cuda") || name.starts_with("__cuda");
}

CUresult LoadModule(const void* image, const LoadOptions& options, JitLog* log,
                    ptx::Module* module) {
  std::vector<PtxText> texts;
  std::string error;
  const CUresult selected = SelectPtx(image, options.compute_capability, &texts, &error);
  if (selected != CUDA_SUCCESS) {
    if (log != nullptr) log->error += "error: " + error + "\n";
    return selected;
  }
  std::vector<Program::Input> inputs;
  for (PtxText& text : texts) {
    std::string name = text.name.empty() ? "PTX" : text.name;
    if (text.architecture != 0) {
      name = fmt::format("PTX {} (compute_{}{})", inputs.size() + 1, text.architecture,
                         text.suffix == '\0' ? "" : std::string(1, text.suffix));
    }
    inputs.push_back({std::move(name), std::move(text.text)});
  }
  return LinkModule(inputs, options, log, module);
}

CUresult ParsePtx(std::string_view name, std::string_view text, const LoadOptions& options,
                  JitLog* log, ptx::Module* module) {
  ptx::Diagnostic diagnostic;
  if (!ptx::Parse(text, module, &diagnostic)) return Refuse(diagnostic, name, log);
  if (!SuitsDevice(*module, options.compute_capability)) {
    diagnostic.message = fmt::format(
        "the PTX is for sm_{}{}, the device's compute capability is {}.{}", module->target,
        module->target_suffix == '\0' ? "" : std::string(1, module->target_suffix),
        options.compute_capability / 10, options.compute_capability % 10);
    Refuse(diagnostic, name, log);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  return CUDA_SUCCESS;
}

CUresult LinkModule(std::span<const Program::Input> inputs, const LoadOptions& options, JitLog* log,
                    ptx::Module* module) {
  std::vector<ptx::LinkInput> parsed;
  for (const Program::Input& input : inputs) {
    ptx::LinkInput& next = parsed.emplace_back();
    next.name = input.name;
    const CUresult result = ParsePtx(input.name, input.ptx, options, log, &next.module);
    if (result != CUDA_SUCCESS) return result;
    if (options.verbose && log != nullptr) {
      log->info += fmt::format("{}: info: {} functions, .version {}.{}, .target sm_{}\n", next.name,
                               next.module.functions.size(), next.module.version / 10,
                               next.module.version % 10, next.module.target);
    }
  }
  const std::string name = inputs.size() == 1 ? inputs[0].name : "link";
  if (parsed.size() == 1) {
    *module = std::move(parsed[0].module);
  } else {
    ptx::Diagnostic diagnostic;
    if (!ptx::Link(std::move(parsed), module, &diagnostic)) return Refuse(diagnostic, name, log);
  }
  return CheckComplete(*module, name, log);
}

}  // namespace smolvm::emulation
