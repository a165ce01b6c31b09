// How each kernel's parameters are packed, and which launches of it have been seen to work.
#pragma once

#include <cuda.h>

#include <array>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

namespace smolvm::guest {

struct LaunchShape {
  uint32_t block[3];
  uint32_t shared_bytes;
  uint32_t kind;   // call id: cooperative launches are shapes of their own
  uint64_t epoch;  // see Session::epoch
  bool operator==(const LaunchShape&) const = default;
};

struct FunctionLayout {
  std::vector<uint64_t> offsets, sizes;
  uint64_t total = 0;
  bool known = true;  // false: the driver cannot say
};

// Lifetime of layouts: as long as the process (handles are never reused with another meaning).
// Threads: every function may be called from any thread.
class Functions {
 public:
  const FunctionLayout* Find(uint64_t id) const;
  const FunctionLayout* Add(uint64_t id, FunctionLayout layout);
  bool Proved(uint64_t id, const LaunchShape& shape) const;
  void Prove(uint64_t id, const LaunchShape& shape);

 private:
  struct Entry {
    FunctionLayout layout;
    // The last few; a program that uses more shapes of one kernel waits now and then.
    std::array<LaunchShape, 8> shapes{};
    size_t next = 0;
  };
  mutable std::shared_mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Entry>> entries_;
};

}  // namespace smolvm::guest
