// The whole of the host's side of a session but the driver: frames, generated decoders, handle
// tables, hand-written dispatch, over a driver that says yes to everything.
#include <cstring>

#include "host-daemon/dispatch/dispatcher.h"
#include "protocol/api/recording_driver.h"
#include "tests/fuzz/frame/session_stream.h"

namespace {

using namespace smolvm;

template <typename T>
T Handle(uintptr_t number) {
  return reinterpret_cast<T>(0x1000 * number);
}

// Addresses that nothing may follow: device memory of a device that is not there.
constexpr CUdeviceptr kMemory = 0x5500'0000'0000;

void SayYes(driver::RecordingDriver* driver) {
  driver->cuCtxGetCurrent = [](CUcontext* context) {
    *context = Handle<CUcontext>(1);
    return CUDA_SUCCESS;
  };
  driver->cuStreamCreate = [](CUstream* stream, unsigned) {
    *stream = Handle<CUstream>(2);
    return CUDA_SUCCESS;
  };
  driver->cuEventCreate = [](CUevent* event, unsigned) {
    *event = Handle<CUevent>(3);
    return CUDA_SUCCESS;
  };
  driver->cuEventDestroy_v2 = [](CUevent) { return CUDA_SUCCESS; };
  driver->cuEventRecord = [](CUevent, CUstream) { return CUDA_SUCCESS; };
  driver->cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
  driver->cuStreamQuery = [](CUstream) { return CUDA_SUCCESS; };
  driver->cuStreamQuery_ptsz = [](CUstream) { return CUDA_ERROR_NOT_READY; };
  driver->cuStreamSynchronize = [](CUstream) { return CUDA_SUCCESS; };
  driver->cuStreamSynchronize_ptsz = [](CUstream) { return CUDA_SUCCESS; };
  driver->cuMemAlloc_v2 = [](CUdeviceptr* address, size_t) {
    *address = kMemory;
    return CUDA_SUCCESS;
  };
  driver->cuMemcpyHtoD_v2 = [](CUdeviceptr, const void* from, size_t size) {
    // Every byte is the worker's to read.
    return size == 0 || memchr(from, 0, size) != from ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  driver->cuMemcpyDtoH_v2 = [](void* to, CUdeviceptr, size_t size) {
    memset(to, 1, size);
    return CUDA_SUCCESS;
  };
  driver->cuMemcpyDtoHAsync_v2 = [](void* to, CUdeviceptr, size_t size, CUstream) {
    memset(to, 1, size);
    return CUDA_SUCCESS;
  };
  driver->cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream) {
    return CUDA_SUCCESS;
  };
  driver->cuModuleLoadDataEx = [](CUmodule* module, const void*, unsigned, CUjit_option*, void**) {
    *module = Handle<CUmodule>(4);
    return CUDA_SUCCESS;
  };
  driver->cuModuleGetFunction = [](CUfunction* function, CUmodule, const char*) {
    *function = Handle<CUfunction>(5);
    return CUDA_SUCCESS;
  };
  driver->cuLaunchKernel = [](CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void**, void** extra) {
    if (extra == nullptr) return CUDA_SUCCESS;
    const size_t size = *static_cast<size_t*>(extra[3]);
    return memchr(extra[1], 0xa5, size) == nullptr ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
  };
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  driver::RecordingDriver driver;
  SayYes(&driver);
  const driver::DriverTable table = driver.Table();
  dispatch::Dispatcher dispatcher(table, {.memory_limit = uint64_t{1} << 32});
  fuzz::ServeBytes(dispatcher, data, size);
  return 0;
}
