// Loading code, and finding what is in it.
#include <algorithm>
#include <optional>
#include <vector>

#include "host-daemon/dispatch/dispatcher.h"
#include "host-daemon/dispatch/jit_options.h"
#include "host-daemon/dispatch/read_image.h"
#include "protocol/api/host_manual.h"
#include "protocol/image/image.h"

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
  if (!image) return CUDA_ERROR_INVALID_IMAGE;
  if (!d.handles().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  call.AboutToBlock();
  CUmodule module = nullptr;
  out->status = d.driver().cuModuleLoadDataEx(&module, image->image(), options.count(),
                                              options.keys(), options.values());
  options.Report(out);
  if (out->status != CUDA_SUCCESS) return CUDA_SUCCESS;
  out->module = d.Mint(module);
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
  if (!image) return CUDA_ERROR_INVALID_IMAGE;
  if (!d.handles().HasRoom()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (in.library_option_keys.size() != in.library_option_values.size())
    return session::Handler::kMalformed;
  // CU_LIBRARY_BINARY_IS_PRESERVED promises that the image stays; ours does not. The host universal
  // function table is an address.
  for (const uint32_t key : in.library_option_keys) {
    if (key != CU_LIBRARY_BINARY_IS_PRESERVED) return CUDA_ERROR_NOT_SUPPORTED;
  }
  call.AboutToBlock();
  CUlibrary library = nullptr;
  out->status =
      d.driver().cuLibraryLoadData(&library, image->image(), options.keys(), options.values(),
                                   options.count(), nullptr, nullptr, 0);
  options.Report(out);
  if (out->status != CUDA_SUCCESS) return CUDA_SUCCESS;
  out->library = d.Mint(library);
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
  std::vector<CUfunction> functions(std::min(in.numFunctions, kMaxEnumerated));
  const auto count = static_cast<unsigned>(functions.size());
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
  std::vector<CUkernel> kernels(std::min(in.numKernels, kMaxEnumerated));
  const auto count = static_cast<unsigned>(kernels.size());
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
