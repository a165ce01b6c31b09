#pragma once

#include <string_view>

namespace smolvm::gpu {

// Whether `text` has the form DDDD:BB:DD.F in hexadecimal, as sysfs and the NVIDIA driver spell PCI
// addresses. Domains may have more than four digits (Intel VMD makes 10000 and up).
bool IsPciAddress(std::string_view text);

// Orders PCI addresses by domain, bus, device and function. What is not an address comes after
// every address, by byte. This order defines a device's index where no vendor tool does.
bool PciAddressLess(std::string_view a, std::string_view b);

}  // namespace smolvm::gpu
