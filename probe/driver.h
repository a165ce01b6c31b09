// The few driver API calls that the probe and the preflight make, found by dlopen: neither needs
// CUDA's headers, and neither fails to start where there is no driver. Signatures as in the CUDA
// driver API reference, 13.0.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smolvm::probe {

using Result = int;  // CUresult; 0 is success.
using Device = int;
using DevicePointer = std::uint64_t;
using Context = void*;
using Module = void*;
using Function = void*;
using Stream = void*;

// A pointer is null where the library lacks the symbol.
struct Driver {
  Result (*cuInit)(unsigned flags);
  Result (*cuDriverGetVersion)(int* version);
  Result (*cuDeviceGetCount)(int* count);
  Result (*cuDeviceGet)(Device* device, int ordinal);
  Result (*cuDeviceGetName)(char* name, int length, Device device);
  Result (*cuCtxCreate)(Context* context, unsigned flags, Device device);
  Result (*cuCtxDestroy)(Context context);
  Result (*cuCtxSynchronize)();
  Result (*cuMemGetInfo)(std::size_t* free, std::size_t* total);
  Result (*cuMemAlloc)(DevicePointer* pointer, std::size_t bytes);
  Result (*cuMemFree)(DevicePointer pointer);
  Result (*cuMemcpyHtoD)(DevicePointer destination, const void* source, std::size_t bytes);
  Result (*cuMemcpyDtoH)(void* destination, DevicePointer source, std::size_t bytes);
  Result (*cuModuleLoadData)(Module* module, const void* image);
  Result (*cuModuleUnload)(Module module);
  Result (*cuModuleGetFunction)(Function* function, Module module, const char* name);
  Result (*cuLaunchKernel)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                           unsigned block_x, unsigned block_y, unsigned block_z,
                           unsigned shared_bytes, Stream stream, void** parameters, void** extra);
};

// Loads the library at `path`, which stays loaded for the life of the process. False, with the
// loader's reason or the first missing symbol in `why`, when it cannot serve.
bool LoadDriver(const char* path, Driver* driver, char* why, std::size_t why_size);

}  // namespace smolvm::probe
