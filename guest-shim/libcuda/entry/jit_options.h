// The option lists of cuModuleLoadDataEx, cuLibraryLoadData and cuLinkCreate. Numbers cross the
// wire; buffers stay here and are filled from the reply.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace smolvm::guest {

class JitOptions {
 public:
  // CUDA_ERROR_INVALID_VALUE for lists that are missing, CUDA_ERROR_NOT_SUPPORTED for options that
  // hand addresses of this process to the driver.
  CUresult Read(unsigned count, CUjit_option* keys, void** values);
  // After Read, of a load or a whole link: asks for the error log, also when the program does not,
  // if our own log would take it.
  void WantErrorLog();

  // What goes into the request.
  std::vector<uint32_t> keys;
  std::vector<uint64_t> values;

  // Fills the program's buffers, and the values that CUDA documents as results. May be called
  // again, with longer logs (a link's accumulate).
  void Store(const std::string& info_log, const std::string& error_log, float wall_time_ms) const;
  // One line in our log that says why the host's driver refused an image or a link.
  static void LogRefusal(const char* event, uint32_t status, std::string_view error_log);

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
