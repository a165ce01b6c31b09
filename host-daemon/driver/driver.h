// The backend: a library that exports the CUDA driver API. The host's own libcuda.so.1, or the CPU
// emulation device.
#pragma once

#include <string>

#include "protocol/api/driver_table.h"

namespace smolvm::driver {

// Loads a library and finds its entry points. Never unloaded: drivers start threads of their own.
// False with a one-line reason. cuInit is not called.
bool LoadDriver(const std::string& path, DriverTable* table, std::string* error);

}  // namespace smolvm::driver
