// printf in kernels.
//
// The format is a guest's: it is interpreted here, never handed to libc's printf, and every byte of
// it and of the arguments is checked to lie in the arena before it is read. Source: CUDA C++
// programming guide, "Formatted Output" (specifiers, return values).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace smolvm::emulation {

// Reads `size` bytes at a device address; false when the kernel may not.
using DeviceReader = std::function<bool(uint64_t address, void* out, size_t size)>;

// Formats as device printf does. `arguments` is the packed buffer that vprintf receives: each
// argument at its natural alignment (4 or 8). Returns the number of arguments, or -1 when the
// format cannot be read.
int FormatDevicePrintf(const DeviceReader& read, uint64_t format, uint64_t arguments,
                       std::string* text);

// Appends to what FlushDeviceOutput() will write. When the buffer is full it is written out at
// once.
void AppendDeviceOutput(std::string_view text);

}  // namespace smolvm::emulation
