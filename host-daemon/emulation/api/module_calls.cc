// Modules, and the attributes of their functions.
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/function_attributes.h"
#include "host-daemon/emulation/api/image_file.h"
#include "protocol/image/image.h"

namespace smolvm::emulation {
namespace {

CUresult Load(CUmodule* handle, const void* image, unsigned count, CUjit_option* options,
              void** values) {
  SMOLVM_ENTER();
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  JitOptions jit;
  SMOLVM_RETURN_IF_ERROR(jit.Parse(count, options, values));
  std::shared_ptr<LoadedImage> loaded;
  SMOLVM_RETURN_IF_ERROR(LoadImage(image, jit, &loaded));
  auto module = std::make_shared<Module>(loaded, context->shared_from_this(), false);
  RegisterVariables(loaded, *context);
  context->AddModule(module);
  *handle = TheDriver().modules.Add(std::move(module));
  return CUDA_SUCCESS;
}

CUresult FindModule(CUmodule handle, std::shared_ptr<Module>* module) {
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *module = TheDriver().modules.Find(handle);
  return *module != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace

SMOLVM_API cuModuleLoadData(CUmodule* module, const void* image) {
  return Load(module, image, 0, nullptr, nullptr);
}

SMOLVM_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int count,
                              CUjit_option* options, void** values) {
  return Load(module, image, count, options, values);
}

SMOLVM_API cuModuleLoadFatBinary(CUmodule* module, const void* fatbin) {
  return Load(module, fatbin, 0, nullptr, nullptr);
}

SMOLVM_API cuModuleLoad(CUmodule* module, const char* path) {
  SMOLVM_ENTER();
  if (module == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  ImageFile file;
  SMOLVM_RETURN_IF_ERROR(file.Read(path));
  return Load(module, file.image(), 0, nullptr, nullptr);
}

SMOLVM_API cuModuleUnload(CUmodule handle) {
  SMOLVM_ENTER();
  SMOLVM_CURRENT_CONTEXT(current);
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(FindModule(handle, &module));
  if (module->of_library()) return CUDA_ERROR_NOT_PERMITTED;  // documented at cuLibraryGetModule
  const auto context = module->context();
  if (context != nullptr) {
    if (const auto group = context->group()) group->WaitAll();
    context->RemoveModule(module.get());
  }
  if (TheDriver().modules.Remove(handle) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  module->Retire();
  return CUDA_SUCCESS;
}

SMOLVM_API cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  SMOLVM_ENTER();
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;  // kernels are compiled at their first use
  return CUDA_SUCCESS;
}

SMOLVM_API cuModuleGetFunction(CUfunction* function, CUmodule handle, const char* name) {
  SMOLVM_ENTER();
  if (function == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(FindModule(handle, &module));
  const auto index = module->image()->FindKernel(name);
  if (!index) return CUDA_ERROR_NOT_FOUND;
  const auto found = module->FunctionAt(*index);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *function = reinterpret_cast<CUfunction>(found.get());
  return CUDA_SUCCESS;
}

SMOLVM_API cuModuleGetFunctionCount(unsigned int* count, CUmodule handle) {
  SMOLVM_ENTER();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(FindModule(handle, &module));
  *count = static_cast<unsigned>(module->image()->program->kernels().size());
  return CUDA_SUCCESS;
}

SMOLVM_API cuModuleEnumerateFunctions(CUfunction* functions, unsigned int capacity,
                                      CUmodule handle) {
  SMOLVM_ENTER();
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(FindModule(handle, &module));
  const size_t count = module->image()->program->kernels().size();
  for (size_t i = 0; i < count && i < capacity; ++i)
    functions[i] = reinterpret_cast<CUfunction>(module->FunctionAt(i).get());
  return CUDA_SUCCESS;
}

SMOLVM_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule handle,
                                const char* name) {
  SMOLVM_ENTER();
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(FindModule(handle, &module));
  const VariableInfo* variable = module->image()->FindVariable(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable->address;
  if (bytes != nullptr) *bytes = variable->size;
  return CUDA_SUCCESS;
}

SMOLVM_API cuFuncGetModule(CUmodule* module, CUfunction handle) {
  SMOLVM_ENTER();
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  *module = function->module();
  return CUDA_SUCCESS;
}

SMOLVM_API cuFuncGetName(const char** name, CUfunction handle) {
  SMOLVM_ENTER();
  if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  *name = function->info().name.c_str();
  return CUDA_SUCCESS;
}

SMOLVM_API cuFuncGetParamInfo(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  SMOLVM_ENTER();
  if (offset == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  return ParamInfoOf(function->info(), index, offset, size);
}

SMOLVM_API cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction handle) {
  SMOLVM_ENTER();
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  *state =
      function->loaded() ? CU_FUNCTION_LOADING_STATE_LOADED : CU_FUNCTION_LOADING_STATE_UNLOADED;
  return CUDA_SUCCESS;
}

SMOLVM_API cuFuncLoad(CUfunction handle) {
  SMOLVM_ENTER();
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  return function->Load();
}

SMOLVM_API cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuFuncGetAttribute(attribute));
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  return GetFunctionAttribute(function->info(), function->settings, attribute, value);
}

SMOLVM_API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value) {
  SMOLVM_ENTER();
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  return SetFunctionAttribute(function->info(), &function->settings, attribute, value);
}

SMOLVM_API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuFuncSetCacheConfig(config));
  std::shared_ptr<Function> function;
  SMOLVM_RETURN_IF_ERROR(FindFunction(handle, &function));
  function->settings.cache_config = config;
  return CUDA_SUCCESS;
}

SMOLVM_API cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuFuncSetSharedMemConfig(config));
  std::shared_ptr<Function> function;
  return FindFunction(handle, &function);  // documented: no effect on devices of this kind
}

}  // namespace smolvm::emulation
