// Loading code, and finding what is in it.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/dispatch/jit_options.h"
#include "host-daemon/dispatch/read_image.h"
#include "protocol/api/host_manual.h"
#include "protocol/image/image.h"
#include "protocol/image/variables.h"
#include "protocol/log/log.h"

namespace smolvm::dispatch {
namespace {

// Bounds on what one session can make the worker keep for a call.
constexpr unsigned kMaxEnumerated = 1 << 16;
constexpr size_t kMaxParams = 8192;

// How a kernel's parameters lie in their block. The guest packs by it.
template <typename Reply, typename Handle, typename Entry>
bool DescribeParams(Entry entry, Handle handle, Reply* out) {
  if (!entry) return false;
  for (size_t i = 0; i < kMaxParams; ++i) {
    size_t offset = 0, size = 0;
    if (entry(handle, i, &offset, &size) != CUDA_SUCCESS) return true;
    out->param_offsets.push_back(offset);
    out->param_sizes.push_back(size);
  }
  return true;
}

// The same from the image, for drivers that cannot be asked.
template <typename Reply>
bool DescribeFromImage(const std::optional<image::KernelParams>& params, Reply* out) {
  if (!params) return false;
  for (const image::KernelParam& param : *params) {
    out->param_offsets.push_back(param.offset);
    out->param_sizes.push_back(param.size);
  }
  return true;
}

// A refusal of ours, which the guest tells the program as one of the driver's.
template <typename Reply>
uint32_t Refuse(CUresult status, const std::string& reason, Reply* out) {
  log::Warn("event=image_refused result={} reason={}", static_cast<int>(status),
            log::Quote(reason));
  out->status = status;
  out->error_log = reason;
  return CUDA_SUCCESS;
}

constexpr char kNoImage[] = "the image contradicts its own length";

// Why the session's memory has no room for what the image takes when it is loaded, which is
// `*bytes`; empty: it has.
std::string WhyNoRoom(Dispatcher& d, std::span<const std::byte> flat, uint64_t* bytes) {
  *bytes = 0;
  if (!d.memory().limited()) return "";
  const auto variables = image::VariableBytes(flat);
  if (!variables) return "its variables cannot be counted for --memory-limit";
  *bytes = *variables;
  if (d.memory().Fits(*bytes)) return "";
  return fmt::format("its variables take {} bytes, more than --memory-limit leaves", *bytes);
}

}  // namespace

namespace manual {

uint32_t cuModuleLoadDataEx(Dispatcher& d, session::Call& call,
                            const api::ModuleLoadDataExRequest& in,
                            api::ModuleLoadDataExReply* out) {
  if (!d.driver().cuModuleLoadDataEx) return d.NotInDriver("cuModuleLoadDataEx");
  JitOptions options;
  if (!options.Read(in.option_keys, in.option_values)) return session::Handler::kMalformed;
  std::vector<std::byte> bytes;
  if (!ReadImage(call, &bytes)) return CUDA_ERROR_UNKNOWN;
  const auto image = image::FlatImage::Read(bytes);
  if (!image) return Refuse(CUDA_ERROR_INVALID_IMAGE, kNoImage, out);
  if (!d.handles().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t variable_bytes = 0;
  if (const std::string why = WhyNoRoom(d, bytes, &variable_bytes); !why.empty())
    return Refuse(CUDA_ERROR_OUT_OF_MEMORY, why, out);
  call.AboutToBlock();
  CUmodule module = nullptr;
  out->status = d.driver().cuModuleLoadDataEx(&module, image->image(), options.count(),
                                              options.keys(), options.values());
  options.Report(out);
  if (out->status != CUDA_SUCCESS) return CUDA_SUCCESS;
  out->module = d.Mint(module);
  if (!d.memory().AddCode(out->module, variable_bytes, d.CurrentContext())) {
    if (d.driver().cuModuleUnload) d.driver().cuModuleUnload(module);
    d.handles().Remove(out->module);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!d.driver().cuFuncGetParamInfo) d.layouts().AddImage(out->module, bytes);
  return CUDA_SUCCESS;
}

uint32_t cuLibraryLoadData(Dispatcher& d, session::Call& call,
                           const api::LibraryLoadDataRequest& in, api::LibraryLoadDataReply* out) {
  if (!d.driver().cuLibraryLoadData) return d.NotInDriver("cuLibraryLoadData");
  JitOptions options;
  if (!options.Read(in.option_keys, in.option_values)) return session::Handler::kMalformed;
  std::vector<std::byte> bytes;
  if (!ReadImage(call, &bytes)) return CUDA_ERROR_UNKNOWN;
  const auto image = image::FlatImage::Read(bytes);
  if (!image) return Refuse(CUDA_ERROR_INVALID_IMAGE, kNoImage, out);
  if (!d.handles().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (in.library_option_keys.size() != in.library_option_values.size())
    return session::Handler::kMalformed;
  // CU_LIBRARY_BINARY_IS_PRESERVED promises that the image stays; ours does not. The host universal
  // function table is an address.
  for (const uint32_t key : in.library_option_keys) {
    if (key != CU_LIBRARY_BINARY_IS_PRESERVED) return CUDA_ERROR_NOT_SUPPORTED;
  }
  uint64_t variable_bytes = 0;
  if (const std::string why = WhyNoRoom(d, bytes, &variable_bytes); !why.empty())
    return Refuse(CUDA_ERROR_OUT_OF_MEMORY, why, out);
  call.AboutToBlock();
  CUlibrary library = nullptr;
  out->status =
      d.driver().cuLibraryLoadData(&library, image->image(), options.keys(), options.values(),
                                   options.count(), nullptr, nullptr, 0);
  options.Report(out);
  if (out->status != CUDA_SUCCESS) return CUDA_SUCCESS;
  out->library = d.Mint(library);
  if (!d.memory().AddCode(out->library, variable_bytes, nullptr)) {
    if (d.driver().cuLibraryUnload) d.driver().cuLibraryUnload(library);
    d.handles().Remove(out->library);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!d.driver().cuKernelGetParamInfo) d.layouts().AddImage(out->library, bytes);
  return CUDA_SUCCESS;
}

uint32_t cuModuleUnload(Dispatcher& d, session::Call& call, const api::ModuleUnloadRequest& in,
                        api::None*) {
  if (!d.driver().cuModuleUnload) return d.NotInDriver("cuModuleUnload");
  CUmodule module = nullptr;
  if (!d.handles().Find(in.hmod, &module)) return CUDA_ERROR_INVALID_HANDLE;
  d.BeforeWaitingForContext(call);
  const CUresult result = d.driver().cuModuleUnload(module);
  if (result == CUDA_SUCCESS) {
    d.handles().Remove(in.hmod);
    d.memory().RemoveCode(in.hmod);
    d.layouts().RemoveImage(in.hmod);
  }
  return result;
}

uint32_t cuLibraryUnload(Dispatcher& d, session::Call& call, const api::LibraryUnloadRequest& in,
                         api::None*) {
  if (!d.driver().cuLibraryUnload) return d.NotInDriver("cuLibraryUnload");
  CUlibrary library = nullptr;
  if (!d.handles().Find(in.library, &library)) return CUDA_ERROR_INVALID_HANDLE;
  call.AboutToBlock();
  const CUresult result = d.driver().cuLibraryUnload(library);
  if (result == CUDA_SUCCESS) {
    d.handles().Remove(in.library);
    d.memory().RemoveCode(in.library);
    d.layouts().RemoveImage(in.library);
  }
  return result;
}

uint32_t cuModuleGetFunction(Dispatcher& d, session::Call&, const api::ModuleGetFunctionRequest& in,
                             api::ModuleGetFunctionReply* out) {
  if (!d.driver().cuModuleGetFunction) return d.NotInDriver("cuModuleGetFunction");
  CUmodule module = nullptr;
  if (!d.handles().Find(in.hmod, &module)) return CUDA_ERROR_INVALID_HANDLE;
  CUfunction function = nullptr;
  if (const CUresult result = d.driver().cuModuleGetFunction(&function, module, in.name.c_str()))
    return result;
  out->hfunc = d.IdOf(function);
  out->has_layout = DescribeParams(d.driver().cuFuncGetParamInfo, function, out) ||
                    DescribeFromImage(d.layouts().Of(in.hmod, in.name, out->hfunc), out);
  return CUDA_SUCCESS;
}

uint32_t cuLibraryGetKernel(Dispatcher& d, session::Call&, const api::LibraryGetKernelRequest& in,
                            api::LibraryGetKernelReply* out) {
  if (!d.driver().cuLibraryGetKernel) return d.NotInDriver("cuLibraryGetKernel");
  CUlibrary library = nullptr;
  if (!d.handles().Find(in.library, &library)) return CUDA_ERROR_INVALID_HANDLE;
  CUkernel kernel = nullptr;
  if (const CUresult result = d.driver().cuLibraryGetKernel(&kernel, library, in.name.c_str()))
    return result;
  out->pKernel = d.IdOf(kernel);
  out->has_layout = DescribeParams(d.driver().cuKernelGetParamInfo, kernel, out) ||
                    DescribeFromImage(d.layouts().Of(in.library, in.name, out->pKernel), out);
  return CUDA_SUCCESS;
}

uint32_t cuKernelGetFunction(Dispatcher& d, session::Call&, const api::KernelGetFunctionRequest& in,
                             api::KernelGetFunctionReply* out) {
  if (!d.driver().cuKernelGetFunction) return d.NotInDriver("cuKernelGetFunction");
  CUkernel kernel = nullptr;
  if (!d.handles().Find(in.kernel, &kernel)) return CUDA_ERROR_INVALID_HANDLE;
  CUfunction function = nullptr;
  if (const CUresult result = d.driver().cuKernelGetFunction(&function, kernel)) return result;
  out->has_layout = DescribeParams(d.driver().cuKernelGetParamInfo, kernel, out) ||
                    DescribeFromImage(d.layouts().OfKernel(in.kernel), out);
  out->pFunc = d.IdOf(function);
  return CUDA_SUCCESS;
}

uint32_t cuModuleEnumerateFunctions(Dispatcher& d, session::Call&,
                                    const api::ModuleEnumerateFunctionsRequest& in,
                                    api::ModuleEnumerateFunctionsReply* out) {
  if (!d.driver().cuModuleEnumerateFunctions) return d.NotInDriver("cuModuleEnumerateFunctions");
  CUmodule module = nullptr;
  if (!d.handles().Find(in.mod, &module)) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned count = std::min(in.numFunctions, kMaxEnumerated);
  std::vector<CUfunction> functions(std::max(count, 1u));  // a place, also for none
  if (const CUresult result =
          d.driver().cuModuleEnumerateFunctions(functions.data(), count, module))
    return result;
  for (const CUfunction function : functions) {
    if (function) out->functions.push_back(d.IdOf(function));
  }
  return CUDA_SUCCESS;
}

uint32_t cuLibraryEnumerateKernels(Dispatcher& d, session::Call&,
                                   const api::LibraryEnumerateKernelsRequest& in,
                                   api::LibraryEnumerateKernelsReply* out) {
  if (!d.driver().cuLibraryEnumerateKernels) return d.NotInDriver("cuLibraryEnumerateKernels");
  CUlibrary library = nullptr;
  if (!d.handles().Find(in.lib, &library)) return CUDA_ERROR_INVALID_HANDLE;
  const unsigned count = std::min(in.numKernels, kMaxEnumerated);
  std::vector<CUkernel> kernels(std::max(count, 1u));
  if (const CUresult result = d.driver().cuLibraryEnumerateKernels(kernels.data(), count, library))
    return result;
  for (const CUkernel kernel : kernels) {
    if (kernel) out->kernels.push_back(d.IdOf(kernel));
  }
  return CUDA_SUCCESS;
}

uint32_t cuFuncGetName(Dispatcher& d, session::Call&, const api::FuncGetNameRequest& in,
                       api::FuncGetNameReply* out) {
  if (!d.driver().cuFuncGetName) return d.NotInDriver("cuFuncGetName");
  CUfunction function = nullptr;
  if (!d.handles().Find(in.hfunc, &function)) return CUDA_ERROR_INVALID_HANDLE;
  const char* name = nullptr;
  const CUresult result = d.driver().cuFuncGetName(&name, function);
  if (result == CUDA_SUCCESS && name) out->name = name;
  return result;
}

uint32_t cuKernelGetName(Dispatcher& d, session::Call&, const api::KernelGetNameRequest& in,
                         api::KernelGetNameReply* out) {
  if (!d.driver().cuKernelGetName) return d.NotInDriver("cuKernelGetName");
  CUkernel kernel = nullptr;
  if (!d.handles().Find(in.hfunc, &kernel)) return CUDA_ERROR_INVALID_HANDLE;
  const char* name = nullptr;
  const CUresult result = d.driver().cuKernelGetName(&name, kernel);
  if (result == CUDA_SUCCESS && name) out->name = name;
  return result;
}

}  // namespace manual
}  // namespace smolvm::dispatch
