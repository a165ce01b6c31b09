// Modules, libraries, functions and kernels. Images are measured and files read here; the host gets
// bytes.
#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "guest-shim/libcuda/entry/entry.h"
#include "guest-shim/libcuda/entry/image_file.h"
#include "guest-shim/libcuda/entry/jit_options.h"
#include "guest-shim/libcuda/entry/layout.h"
#include "protocol/api/guest_manual.h"
#include "protocol/api/library.wire.h"
#include "protocol/api/module.wire.h"
#include "protocol/api/values.h"
#include "protocol/image/image.h"

namespace smolvm::guest {
namespace {

// Names live as long as the process: the driver's do, and callers keep the pointers.
const char* KeepName(uint64_t id, const std::string& name) {
  static auto* mutex = new std::mutex;
  static auto* names = new std::unordered_map<uint64_t, std::string>;
  const std::lock_guard lock(*mutex);
  return names->try_emplace(id, name).first->second.c_str();
}

constexpr char kNoImage[] = "no PTX, no ELF file and no fat binary, or it ends before its end";

CUresult Refused(uint32_t status, const std::string& error_log) {
  JitOptions::LogRefusal("module_refused", status, error_log);
  return static_cast<CUresult>(status);
}

// The program's own buffer for it is told as well.
CUresult RefusedHere(const JitOptions& options) {
  options.Store({}, kNoImage, 0);
  return Refused(CUDA_ERROR_INVALID_IMAGE, kNoImage);
}

// Of a module that was loaded: which of its kernels cannot run.
void TellOfKernels(const std::string& error_log) {
  if (!error_log.empty()) JitOptions::LogRefusal("kernels_refused", CUDA_SUCCESS, error_log);
}

CUresult LoadModule(uint32_t variant, CUmodule* module, const void* image, unsigned count,
                    CUjit_option* keys, void** values) {
  if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
  JitOptions options;
  if (const CUresult result = options.Read(count, keys, values)) return result;
  options.WantErrorLog();
  const std::vector<std::byte> bytes = image::Flatten(image);
  if (bytes.empty() || bytes.size() > kMaxImageBytes) return RefusedHere(options);
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  api::ModuleLoadDataExReply reply;
  const api::ModuleLoadDataExRequest request{options.keys, options.values};
  if (const CUresult result =
          Ask(api::id::cuModuleLoadDataEx, variant, request, &reply, Bulk(&part, 1)))
    return result;
  options.Store(reply.info_log, reply.error_log, reply.wall_time_ms);
  if (reply.status != CUDA_SUCCESS) return Refused(reply.status, reply.error_log);
  TellOfKernels(reply.error_log);
  *module = reinterpret_cast<CUmodule>(reply.module);
  return CUDA_SUCCESS;
}

CUresult LoadLibrary(uint32_t variant, CUlibrary* library, const void* code, unsigned count,
                     CUjit_option* keys, void** values, unsigned library_count,
                     CUlibraryOption* library_keys, void** library_values) {
  if (!library || !code || (library_count > 0 && !library_keys)) return CUDA_ERROR_INVALID_VALUE;
  JitOptions options;
  if (const CUresult result = options.Read(count, keys, values)) return result;
  options.WantErrorLog();
  api::LibraryLoadDataRequest request{options.keys, options.values, {}, {}};
  for (unsigned i = 0; i < library_count; ++i) {
    if (const CUresult result = api::check::cuLibraryLoadData(library_keys[i])) return result;
    const bool set = library_values && library_values[i];
    if (library_keys[i] != CU_LIBRARY_BINARY_IS_PRESERVED) {
      if (set) return CUDA_ERROR_NOT_SUPPORTED;  // an address of this process
      continue;
    }
    request.library_option_keys.push_back(library_keys[i]);
    request.library_option_values.push_back(set);
  }
  const std::vector<std::byte> bytes = image::Flatten(code);
  if (bytes.empty() || bytes.size() > kMaxImageBytes) return RefusedHere(options);
  const iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  api::LibraryLoadDataReply reply;
  if (const CUresult result =
          Ask(api::id::cuLibraryLoadData, variant, request, &reply, Bulk(&part, 1)))
    return result;
  options.Store(reply.info_log, reply.error_log, reply.wall_time_ms);
  if (reply.status != CUDA_SUCCESS) return Refused(reply.status, reply.error_log);
  TellOfKernels(reply.error_log);
  *library = reinterpret_cast<CUlibrary>(reply.library);
  return CUDA_SUCCESS;
}

}  // namespace

const FunctionLayout* LayoutOf(CUfunction function, CUresult* result) {
  const auto id = reinterpret_cast<uint64_t>(function);
  if (const FunctionLayout* layout = TheSession().functions().Find(id)) return layout;
  // A handle that was enumerated, or a kernel cast to a function: its parameters are asked for one
  // by one.
  FunctionLayout layout;
  for (uint64_t i = 0;; ++i) {
    api::FuncGetParamInfoReply reply;
    *result =
        Ask(api::id::cuFuncGetParamInfo, kNoVariant, api::FuncGetParamInfoRequest{id, i}, &reply);
    if (*result == CUDA_ERROR_INVALID_VALUE) break;
    if (*result != CUDA_SUCCESS) return nullptr;
    layout.offsets.push_back(reply.paramOffset);
    layout.sizes.push_back(reply.paramSize);
  }
  *result = CUDA_SUCCESS;
  return TheSession().functions().Add(id, std::move(layout));
}

namespace manual {

CUresult cuModuleLoadDataEx(uint32_t variant, CUmodule* module, const void* image,
                            unsigned int numOptions, CUjit_option* options, void** optionValues) {
  return LoadModule(variant, module, image, numOptions, options, optionValues);
}

CUresult cuModuleLoadData(uint32_t variant, CUmodule* module, const void* image) {
  return LoadModule(variant, module, image, 0, nullptr, nullptr);
}

CUresult cuModuleLoadFatBinary(uint32_t variant, CUmodule* module, const void* fatCubin) {
  return LoadModule(variant, module, fatCubin, 0, nullptr, nullptr);
}

CUresult cuModuleLoad(uint32_t variant, CUmodule* module, const char* fname) {
  if (!module || !fname) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> bytes;
  if (const CUresult result = ReadImageFile(fname, &bytes)) return result;
  if (image::MeasureImage(bytes.data(), bytes.size()).kind == image::Kind::kInvalid)
    return Refused(CUDA_ERROR_INVALID_IMAGE, kNoImage);
  return LoadModule(variant, module, bytes.data(), 0, nullptr, nullptr);
}

CUresult cuModuleGetFunction(uint32_t variant, CUfunction* hfunc, CUmodule hmod, const char* name) {
  if (!hfunc || !name) return CUDA_ERROR_INVALID_VALUE;
  api::ModuleGetFunctionReply reply;
  const api::ModuleGetFunctionRequest request{reinterpret_cast<uint64_t>(hmod), name};
  if (const CUresult result = Ask(api::id::cuModuleGetFunction, variant, request, &reply))
    return result;
  RememberLayout(reply.hfunc, reply);
  *hfunc = reinterpret_cast<CUfunction>(reply.hfunc);
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(uint32_t variant, CUfunction* functions,
                                    unsigned int numFunctions, CUmodule mod) {
  if (!functions) return CUDA_ERROR_INVALID_VALUE;
  api::ModuleEnumerateFunctionsReply reply;
  const api::ModuleEnumerateFunctionsRequest request{numFunctions, reinterpret_cast<uint64_t>(mod)};
  if (const CUresult result = Ask(api::id::cuModuleEnumerateFunctions, variant, request, &reply))
    return result;
  for (size_t i = 0; i < reply.functions.size() && i < numFunctions; ++i) {
    functions[i] = reinterpret_cast<CUfunction>(reply.functions[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(uint32_t variant, const char** name, CUfunction hfunc) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  api::FuncGetNameReply reply;
  const api::FuncGetNameRequest request{reinterpret_cast<uint64_t>(hfunc)};
  if (const CUresult result = Ask(api::id::cuFuncGetName, variant, request, &reply)) return result;
  *name = KeepName(request.hfunc, reply.name);
  return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(uint32_t variant, CUlibrary* library, const void* code,
                           CUjit_option* jitOptions, void** jitOptionsValues,
                           unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                           void** libraryOptionValues, unsigned int numLibraryOptions) {
  return LoadLibrary(variant, library, code, numJitOptions, jitOptions, jitOptionsValues,
                     numLibraryOptions, libraryOptions, libraryOptionValues);
}

CUresult cuLibraryLoadFromFile(uint32_t variant, CUlibrary* library, const char* fileName,
                               CUjit_option* jitOptions, void** jitOptionsValues,
                               unsigned int numJitOptions, CUlibraryOption* libraryOptions,
                               void** libraryOptionValues, unsigned int numLibraryOptions) {
  if (!library || !fileName) return CUDA_ERROR_INVALID_VALUE;
  std::vector<char> bytes;
  if (const CUresult result = ReadImageFile(fileName, &bytes)) return result;
  if (image::MeasureImage(bytes.data(), bytes.size()).kind == image::Kind::kInvalid)
    return Refused(CUDA_ERROR_INVALID_IMAGE, kNoImage);
  return LoadLibrary(variant, library, bytes.data(), numJitOptions, jitOptions, jitOptionsValues,
                     numLibraryOptions, libraryOptions, libraryOptionValues);
}

CUresult cuLibraryGetKernel(uint32_t variant, CUkernel* pKernel, CUlibrary library,
                            const char* name) {
  if (!pKernel || !name) return CUDA_ERROR_INVALID_VALUE;
  api::LibraryGetKernelReply reply;
  const api::LibraryGetKernelRequest request{reinterpret_cast<uint64_t>(library), name};
  if (const CUresult result = Ask(api::id::cuLibraryGetKernel, variant, request, &reply))
    return result;
  RememberLayout(reply.pKernel, reply);
  *pKernel = reinterpret_cast<CUkernel>(reply.pKernel);
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(uint32_t variant, CUkernel* kernels, unsigned int numKernels,
                                   CUlibrary lib) {
  if (!kernels) return CUDA_ERROR_INVALID_VALUE;
  api::LibraryEnumerateKernelsReply reply;
  const api::LibraryEnumerateKernelsRequest request{numKernels, reinterpret_cast<uint64_t>(lib)};
  if (const CUresult result = Ask(api::id::cuLibraryEnumerateKernels, variant, request, &reply))
    return result;
  for (size_t i = 0; i < reply.kernels.size() && i < numKernels; ++i) {
    kernels[i] = reinterpret_cast<CUkernel>(reply.kernels[i]);
  }
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(uint32_t variant, CUfunction* pFunc, CUkernel kernel) {
  if (!pFunc) return CUDA_ERROR_INVALID_VALUE;
  api::KernelGetFunctionReply reply;
  const api::KernelGetFunctionRequest request{reinterpret_cast<uint64_t>(kernel)};
  if (const CUresult result = Ask(api::id::cuKernelGetFunction, variant, request, &reply))
    return result;
  RememberLayout(reply.pFunc, reply);
  *pFunc = reinterpret_cast<CUfunction>(reply.pFunc);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(uint32_t variant, const char** name, CUkernel hfunc) {
  if (!name) return CUDA_ERROR_INVALID_VALUE;
  api::KernelGetNameReply reply;
  const api::KernelGetNameRequest request{reinterpret_cast<uint64_t>(hfunc)};
  if (const CUresult result = Ask(api::id::cuKernelGetName, variant, request, &reply))
    return result;
  *name = KeepName(request.hfunc, reply.name);
  return CUDA_SUCCESS;
}

}  // namespace manual
}  // namespace smolvm::guest
