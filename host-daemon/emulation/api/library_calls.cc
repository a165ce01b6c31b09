// Libraries, and the attributes of their kernels.
#include "host-daemon/emulation/api/api.h"
#include "host-daemon/emulation/api/function_attributes.h"
#include "host-daemon/emulation/api/image_file.h"
#include "protocol/image/image.h"

namespace smolvm::emulation {
namespace {

// CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE belongs to the CUDA runtime's own registration;
// CU_LIBRARY_BINARY_IS_PRESERVED only allows us not to copy.
CUresult CheckLibraryOptions(unsigned count, const CUlibraryOption* options, void** values) {
  if (count == 0) return CUDA_SUCCESS;
  if (options == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    SMOLVM_RETURN_IF_ERROR(api::check::cuLibraryLoadData(options[i]));
    if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE && values != nullptr &&
        values[i] != nullptr)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

CUresult Load(CUlibrary* handle, const void* code, unsigned jit_count, CUjit_option* jit_options,
              void** jit_values, unsigned count, CUlibraryOption* options, void** values) {
  if (handle == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(CheckLibraryOptions(count, options, values));
  JitOptions jit;
  SMOLVM_RETURN_IF_ERROR(jit.Parse(jit_count, jit_options, jit_values));
  std::shared_ptr<LoadedImage> loaded;
  SMOLVM_RETURN_IF_ERROR(LoadImage(code, jit, &loaded));
  auto library =
      std::make_shared<Library>(image::Flatten(code), jit.WithoutBuffers(), std::move(loaded));
  *handle = TheDriver().libraries.Add(std::move(library));
  return CUDA_SUCCESS;
}

CUresult FindLibrary(CUlibrary handle, std::shared_ptr<Library>* library) {
  *library = handle == nullptr ? nullptr : TheDriver().libraries.Find(handle);
  return *library != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult FindKernel(CUkernel handle, std::shared_ptr<Kernel>* kernel,
                    std::shared_ptr<Library>* library) {
  *kernel = handle == nullptr ? nullptr : TheDriver().kernels.Find(handle);
  *library = *kernel == nullptr ? nullptr : (*kernel)->library();
  return *library != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

const KernelInfo& InfoOf(const Library& library, const Kernel& kernel) {
  return library.image().program->kernels()[kernel.index()];
}

CUresult FindVariable(CUdeviceptr* address, size_t* bytes, CUlibrary handle, const char* name,
                      bool managed) {
  SMOLVM_ENTER();
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindLibrary(handle, &library));
  const VariableInfo* listed = library->image().FindVariable(name);
  if (listed == nullptr || listed->is_managed != managed) return CUDA_ERROR_NOT_FOUND;
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(library->ModuleIn(*context, &module));
  const VariableInfo* variable = module->image()->FindVariable(name);
  if (variable == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (address != nullptr) *address = variable->address;
  if (bytes != nullptr) *bytes = variable->size;
  return CUDA_SUCCESS;
}

}  // namespace

SMOLVM_API cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jit_options,
                             void** jit_values, unsigned int jit_count, CUlibraryOption* options,
                             void** values, unsigned int count) {
  SMOLVM_ENTER();
  return Load(library, code, jit_count, jit_options, jit_values, count, options, values);
}

SMOLVM_API cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* jit_options,
                                 void** jit_values, unsigned int jit_count,
                                 CUlibraryOption* options, void** values, unsigned int count) {
  SMOLVM_ENTER();
  if (library == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ImageFile file;
  SMOLVM_RETURN_IF_ERROR(file.Read(path));
  return Load(library, file.image(), jit_count, jit_options, jit_values, count, options, values);
}

SMOLVM_API cuLibraryUnload(CUlibrary handle) {
  SMOLVM_ENTER();
  const auto library = handle == nullptr ? nullptr : TheDriver().libraries.Remove(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  library->Retire();
  return CUDA_SUCCESS;
}

SMOLVM_API cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  SMOLVM_ENTER();
  if (kernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindLibrary(handle, &library));
  const auto index = library->image().FindKernel(name);
  if (!index) return CUDA_ERROR_NOT_FOUND;
  *kernel = reinterpret_cast<CUkernel>(library->KernelAt(*index).get());
  return CUDA_SUCCESS;
}

SMOLVM_API cuLibraryGetKernelCount(unsigned int* count, CUlibrary handle) {
  SMOLVM_ENTER();
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindLibrary(handle, &library));
  *count = static_cast<unsigned>(library->image().program->kernels().size());
  return CUDA_SUCCESS;
}

SMOLVM_API cuLibraryEnumerateKernels(CUkernel* kernels, unsigned int capacity, CUlibrary handle) {
  SMOLVM_ENTER();
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindLibrary(handle, &library));
  const size_t count = library->image().program->kernels().size();
  for (size_t i = 0; i < count && i < capacity; ++i)
    kernels[i] = reinterpret_cast<CUkernel>(library->KernelAt(i).get());
  return CUDA_SUCCESS;
}

SMOLVM_API cuLibraryGetModule(CUmodule* handle, CUlibrary library_handle) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindLibrary(library_handle, &library));
  SMOLVM_CURRENT_CONTEXT(context);
  std::shared_ptr<Module> module;
  SMOLVM_RETURN_IF_ERROR(library->ModuleIn(*context, &module));
  *handle = module->handle();
  return CUDA_SUCCESS;
}

SMOLVM_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                              const char* name) {
  return FindVariable(address, bytes, library, name, false);
}

SMOLVM_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library,
                               const char* name) {
  return FindVariable(address, bytes, library, name, true);
}

// CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS is 0.
SMOLVM_API cuLibraryGetUnifiedFunction(void** function, CUlibrary handle, const char* symbol) {
  SMOLVM_ENTER();
  if (function == nullptr || symbol == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindLibrary(handle, &library));
  return CUDA_ERROR_NOT_FOUND;
}

SMOLVM_API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  SMOLVM_ENTER();
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_CURRENT_CONTEXT(context);
  if (kernel == nullptr || TheDriver().kernels.Find(kernel) == nullptr)
    return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Function> found;
  SMOLVM_RETURN_IF_ERROR(FindFunction(reinterpret_cast<CUfunction>(kernel), &found));
  *function = reinterpret_cast<CUfunction>(found.get());
  return CUDA_SUCCESS;
}

SMOLVM_API cuKernelGetLibrary(CUlibrary* handle, CUkernel kernel_handle) {
  SMOLVM_ENTER();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindKernel(kernel_handle, &kernel, &library));
  *handle = library->handle();
  return CUDA_SUCCESS;
}

SMOLVM_API cuKernelGetName(const char** name, CUkernel handle) {
  SMOLVM_ENTER();
  if (name == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindKernel(handle, &kernel, &library));
  *name = InfoOf(*library, *kernel).name.c_str();
  return CUDA_SUCCESS;
}

SMOLVM_API cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset, size_t* size) {
  SMOLVM_ENTER();
  if (offset == nullptr || handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindKernel(handle, &kernel, &library));
  return ParamInfoOf(InfoOf(*library, *kernel), index, offset, size);
}

SMOLVM_API cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                                CUdevice device) {
  SMOLVM_ENTER();
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  SMOLVM_RETURN_IF_ERROR(api::check::cuKernelGetAttribute(attribute));
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindKernel(handle, &kernel, &library));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return GetFunctionAttribute(InfoOf(*library, *kernel), kernel->settings, attribute, value);
}

SMOLVM_API cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                                CUdevice device) {
  SMOLVM_ENTER();
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindKernel(handle, &kernel, &library));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  return SetFunctionAttribute(InfoOf(*library, *kernel), &kernel->settings, attribute, value);
}

SMOLVM_API cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice device) {
  SMOLVM_ENTER();
  SMOLVM_RETURN_IF_ERROR(api::check::cuKernelSetCacheConfig(config));
  std::shared_ptr<Kernel> kernel;
  std::shared_ptr<Library> library;
  SMOLVM_RETURN_IF_ERROR(FindKernel(handle, &kernel, &library));
  SMOLVM_RETURN_IF_ERROR(CheckDevice(device));
  kernel->settings.cache_config = config;
  return CUDA_SUCCESS;
}

}  // namespace smolvm::emulation
