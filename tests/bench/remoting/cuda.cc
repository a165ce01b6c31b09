#include "tests/bench/remoting/cuda.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace smolvm::bench {
namespace {

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) Fail(std::string("no symbol ") + name);
}

}  // namespace

void Fail(const std::string& what) {
  fmt::print(stderr, "bench_remoting: {}\n", what);
  exit(1);
}

void Check(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) Fail(fmt::format("{} returned {}", what, static_cast<int>(result)));
}

Cuda OpenCuda(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) Fail(dlerror());
  Cuda cuda;
  Find(library, "cuInit", &cuda.init);
  Find(library, "cuDevicePrimaryCtxRetain", &cuda.retain);
  Find(library, "cuCtxSetCurrent", &cuda.set_current);
  Find(library, "cuMemGetInfo_v2", &cuda.mem_get_info);
  Find(library, "cuMemAlloc_v2", &cuda.alloc);
  Find(library, "cuMemFree_v2", &cuda.free);
  Find(library, "cuMemsetD32Async", &cuda.memset_async);
  Find(library, "cuMemcpyHtoD_v2", &cuda.to_device);
  Find(library, "cuMemcpyDtoH_v2", &cuda.to_host);
  Find(library, "cuMemcpyHtoDAsync_v2", &cuda.to_device_async);
  Find(library, "cuMemcpyDtoHAsync_v2", &cuda.to_host_async);
  Find(library, "cuMemHostAlloc", &cuda.host_alloc);
  Find(library, "cuMemFreeHost", &cuda.host_free);
  Find(library, "cuStreamCreate", &cuda.stream_create);
  Find(library, "cuStreamSynchronize", &cuda.stream_synchronize);
  return cuda;
}

void Begin(const Cuda& cuda) {
  CUcontext context = nullptr;
  Check(cuda.init(0), "cuInit");
  Check(cuda.retain(&context, 0), "cuDevicePrimaryCtxRetain");
  Check(cuda.set_current(context), "cuCtxSetCurrent");
}

}  // namespace smolvm::bench
