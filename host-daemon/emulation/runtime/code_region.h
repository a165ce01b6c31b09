// The one range of addresses in which all generated code lies, so that a signal handler can tell
// with two comparisons whether it interrupted a kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "host-daemon/emulation/device/address_space.h"

namespace smolvm::emulation {

// Lifetime: one per process, never destroyed. Threads: any.
class CodeRegion {
 public:
  static constexpr size_t kBytes = kCodeBytes;

  // Reserves the range at the first call, unless kCodeAtVariable names one; its base is null when
  // that failed.
  static CodeRegion& Get();

  // Page-granular, readable and writable; null when full. The caller changes protections.
  void* Take(size_t bytes);
  void Put(void* address, size_t bytes);

  // Async-signal-safe after the first Get().
  static bool Holds(const void* address);

 private:
  CodeRegion();

  std::mutex mutex_;
  std::map<uintptr_t, size_t> holes_;
};

}  // namespace smolvm::emulation
