// In a machine: holds a CUDA session and calls until a call fails; prints what the program saw, and
// what its next call returned. Exit status 0 if there was a failure to tell of, 1 otherwise.
#include <dlfcn.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>

namespace {

using Init = int(unsigned);
using DeviceGet = int(int*, int);
using Retain = int(void**, int);
using SetCurrent = int(void*);
using MemGetInfo = int(size_t*, size_t*);

template <typename F>
F* Find(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

}  // namespace

int main() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return 1;
  int device = 0;
  void* context = nullptr;
  if (Find<Init>(library, "cuInit")(0) != 0 ||
      Find<DeviceGet>(library, "cuDeviceGet")(&device, 0) != 0 ||
      Find<Retain>(library, "cuDevicePrimaryCtxRetain")(&context, device) != 0 ||
      Find<SetCurrent>(library, "cuCtxSetCurrent")(context) != 0) {
    std::puts("no session");
    return 1;
  }
  std::puts("session is up");
  std::fflush(stdout);
  auto* const ask = Find<MemGetInfo>(library, "cuMemGetInfo_v2");
  size_t free_bytes = 0, total = 0;
  for (int tries = 0; tries < 6000; ++tries) {
    const int first = ask(&free_bytes, &total);
    if (first != 0) {
      std::printf("failed with %d, then %d\n", first, ask(&free_bytes, &total));
      return 0;
    }
    usleep(20000);
  }
  return 1;
}
