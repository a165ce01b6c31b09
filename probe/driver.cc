#include "probe/driver.h"

#include <dlfcn.h>

#include <cstdio>

namespace smolvm::probe {

namespace {

template <typename Pointer>
bool Find(void* library, const char* name, Pointer* pointer, char* why, std::size_t why_size) {
  *pointer = reinterpret_cast<Pointer>(dlsym(library, name));
  if (*pointer == nullptr) std::snprintf(why, why_size, "the library has no %s", name);
  return *pointer != nullptr;
}

}  // namespace

bool LoadDriver(const char* path, Driver* driver, char* why, std::size_t why_size) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    std::snprintf(why, why_size, "%s", reason != nullptr ? reason : "unknown reason");
    return false;
  }
  // The names that programs link: cuda.h maps the plain ones to these versions.
  return Find(library, "cuInit", &driver->cuInit, why, why_size) &&
         Find(library, "cuDriverGetVersion", &driver->cuDriverGetVersion, why, why_size) &&
         Find(library, "cuDeviceGetCount", &driver->cuDeviceGetCount, why, why_size) &&
         Find(library, "cuDeviceGet", &driver->cuDeviceGet, why, why_size) &&
         Find(library, "cuDeviceGetName", &driver->cuDeviceGetName, why, why_size) &&
         Find(library, "cuCtxCreate_v2", &driver->cuCtxCreate, why, why_size) &&
         Find(library, "cuCtxDestroy_v2", &driver->cuCtxDestroy, why, why_size) &&
         Find(library, "cuCtxSynchronize", &driver->cuCtxSynchronize, why, why_size) &&
         Find(library, "cuMemGetInfo_v2", &driver->cuMemGetInfo, why, why_size) &&
         Find(library, "cuMemAlloc_v2", &driver->cuMemAlloc, why, why_size) &&
         Find(library, "cuMemFree_v2", &driver->cuMemFree, why, why_size) &&
         Find(library, "cuMemcpyHtoD_v2", &driver->cuMemcpyHtoD, why, why_size) &&
         Find(library, "cuMemcpyDtoH_v2", &driver->cuMemcpyDtoH, why, why_size) &&
         Find(library, "cuModuleLoadData", &driver->cuModuleLoadData, why, why_size) &&
         Find(library, "cuModuleUnload", &driver->cuModuleUnload, why, why_size) &&
         Find(library, "cuModuleGetFunction", &driver->cuModuleGetFunction, why, why_size) &&
         Find(library, "cuLaunchKernel", &driver->cuLaunchKernel, why, why_size);
}

}  // namespace smolvm::probe
