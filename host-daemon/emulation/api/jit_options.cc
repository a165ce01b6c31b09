#include "host-daemon/emulation/api/jit_options.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace smolvm::emulation {
namespace {

size_t SizeIn(void* value) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value)); }

}  // namespace

CUresult JitOptions::Parse(unsigned count, const CUjit_option* options, void** values) {
  if (count != 0 && (options == nullptr || values == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    const CUresult result = ParseOne(options[i], &values[i]);
    if (result != CUDA_SUCCESS) return result;
  }
  if ((info_.text != nullptr && info_.filled == nullptr) ||
      (error_.text != nullptr && error_.filled == nullptr))
    return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult JitOptions::ParseOne(CUjit_option option, void** value) {
  switch (option) {
    case CU_JIT_WALL_TIME:
      wall_time_ = value;
      return CUDA_SUCCESS;
    case CU_JIT_INFO_LOG_BUFFER:
      info_.text = static_cast<char*>(*value);
      return CUDA_SUCCESS;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
      info_.bytes = SizeIn(*value);
      info_.filled = value;
      return CUDA_SUCCESS;
    case CU_JIT_ERROR_LOG_BUFFER:
      error_.text = static_cast<char*>(*value);
      return CUDA_SUCCESS;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
      error_.bytes = SizeIn(*value);
      error_.filled = value;
      return CUDA_SUCCESS;
    case CU_JIT_LOG_VERBOSE:
      load_.verbose = SizeIn(*value) != 0;
      return CUDA_SUCCESS;
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_GLOBAL_SYMBOL_COUNT:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_KERNEL_COUNT:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_COUNT:
      return *value == nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
    default:
      // The others tune a GPU compiler's registers, code and caches, of which there are none here,
      // or are documented to have no effect without LTO.
      return option < 0 || option >= CU_JIT_NUM_OPTIONS ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
}

void JitOptions::Fill(const Buffer& buffer, const std::string& text) {
  if (buffer.filled == nullptr) return;
  size_t written = 0;
  if (buffer.text != nullptr && buffer.bytes > 0) {
    written = std::min(text.size(), buffer.bytes - 1);
    std::memcpy(buffer.text, text.data(), written);
    buffer.text[written] = '\0';
  }
  *buffer.filled = reinterpret_cast<void*>(written);
}

void JitOptions::Report(const JitLog& log, float milliseconds) const {
  Fill(info_, log.info);
  Fill(error_, log.error);
  if (wall_time_ != nullptr) std::memcpy(wall_time_, &milliseconds, sizeof(milliseconds));
}

JitOptions JitOptions::WithoutBuffers() const {
  JitOptions options;
  options.load_ = load_;
  return options;
}

}  // namespace smolvm::emulation
