// The option lists of cuModuleLoadDataEx, cuLibraryLoadData and cuLinkCreate. Numbers cross the
// wire; buffers stay here and are filled from the reply.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <vector>

namespace smolvm::guest {

class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for lists that are missing, CUDA_ERROR_NOT_SUPPORTED for options that
  // hand addresses of this process to the driver.
  CUresult Read(unsigned count, CUjit_option* keys, void** values);

  // What goes into the request.
  std::vector<uint32_t> keys;
  std::vector<uint64_t> values;

  // Fills the program's buffers, and the values that CUDA documents as results. May be called
  // again, with longer logs (a link's accumulate).
  void Store(const std::string& info_log, const std::string& error_log, float wall_time_ms) const;

 private:
  struct Log {
    char* buffer = nullptr;
    void** size = nullptr;
    size_t capacity = 0;  // before the first Store replaced it by what was filled
  };
  static void StoreLog(const Log& log, const std::string& text);
  Log info_, error_;
  void** wall_time_ = nullptr;
};

}  // namespace smolvm::guest
