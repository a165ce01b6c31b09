// `smolvm machine accelerator`: what machines run on here, and why.
#pragma once

#include <optional>
#include <string>

#include "machine/guest/accelerator.h"
#include "machine/launch/options.h"

namespace smolvm::machine {

int ShowAccelerator(const Options& options);

// What is known; starts nothing.
struct AcceleratorReport {
  AcceleratorWish wish = AcceleratorWish::kAuto;
  std::string no_device;           // why there is no KVM device; "" when there is one
  std::optional<Verdict> verdict;  // none: not tried yet
};
std::string FormatAccelerator(const AcceleratorReport& report);
std::string FormatAcceleratorJson(const AcceleratorReport& report);

}  // namespace smolvm::machine
