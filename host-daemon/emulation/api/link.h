// A link in progress: CUlinkState.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "host-daemon/emulation/api/jit_options.h"
#include "host-daemon/emulation/image/linker.h"

namespace smolvm::emulation {

// Lifetime: shared by the handle table and calls in progress; needs no context once it is made. The
// program's option values must stay valid as long (documented at cuLinkCreate).
// Threads: every function may be called from any thread; one at a time works.
class LinkState {
 public:
  LinkState(const JitOptions& options, std::unique_ptr<Linker> linker)
      : options_(options), linker_(std::move(linker)) {}

  CUresult Add(CUjitInputType type, std::span<const std::byte> data, std::string_view name);
  // `*image` stays valid until the state ends or another Complete makes a different image.
  CUresult Complete(std::span<const std::byte>* image);

 private:
  // Runs a step, and reports what all steps so far have logged and taken.
  template <typename Step>
  CUresult Timed(Step&& step);

  std::mutex mutex_;
  const JitOptions options_;
  const std::unique_ptr<Linker> linker_;
  JitLog log_;
  float milliseconds_ = 0;
  std::vector<std::byte> image_;
};

}  // namespace smolvm::emulation
