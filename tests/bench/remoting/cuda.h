// The driver API of a library that was opened by path: the guest's, or the emulation device's own.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <string>

namespace smolvm::bench {

struct Cuda {
  CUresult (*init)(unsigned);
  CUresult (*retain)(CUcontext*, CUdevice);
  CUresult (*set_current)(CUcontext);
  CUresult (*mem_get_info)(size_t*, size_t*);
  CUresult (*alloc)(CUdeviceptr*, size_t);
  CUresult (*free)(CUdeviceptr);
  CUresult (*memset_async)(CUdeviceptr, unsigned, size_t, CUstream);
  CUresult (*to_device)(CUdeviceptr, const void*, size_t);
  CUresult (*to_host)(void*, CUdeviceptr, size_t);
  CUresult (*to_device_async)(CUdeviceptr, const void*, size_t, CUstream);
  CUresult (*to_host_async)(void*, CUdeviceptr, size_t, CUstream);
  CUresult (*host_alloc)(void**, size_t, unsigned);
  CUresult (*host_free)(void*);
  CUresult (*stream_create)(CUstream*, unsigned);
  CUresult (*stream_synchronize)(CUstream);
};

// Ends the process with one line when the library or a name is missing.
Cuda OpenCuda(const std::string& path);
// Initialises, and makes the first device's primary context current.
void Begin(const Cuda& cuda);
// Ends the process with one line when a call fails: a benchmark of failing calls says nothing.
void Check(CUresult result, const char* what);
[[noreturn]] void Fail(const std::string& what);

}  // namespace smolvm::bench
