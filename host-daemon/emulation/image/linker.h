// What stands behind cuLinkCreate … cuLinkComplete.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "host-daemon/emulation/runtime/program.h"

namespace smolvm::emulation {

// Lifetime: keeps nothing of the inputs' memory.
// Threads: used by one thread at a time.
class Linker {
 public:
  static std::unique_ptr<Linker> Make(const LoadOptions& options);
  virtual ~Linker() = default;

  // Adds an input; it is parsed at once. Messages are appended to `*log`. A failed input is not
  // added. CUDA_ERROR_INVALID_PTX and the other results of Program::Load; see also link_input.h.
  virtual CUresult Add(CUjitInputType type, std::span<const std::byte> data, std::string_view name,
                       JitLog* log) = 0;

  // Links what was added, into an image that Program::Load takes. May be called again, after more
  // inputs or not. CUDA_ERROR_INVALID_PTX: undefined or doubly defined symbols, named in the log.
  virtual CUresult Complete(JitLog* log, std::vector<std::byte>* image) = 0;
};

}  // namespace smolvm::emulation
