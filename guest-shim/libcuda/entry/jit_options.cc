#include "guest-shim/libcuda/entry/jit_options.h"

#include <algorithm>
#include <cstring>

#include "protocol/api/attributes.h"
#include "protocol/gen/exports/error_names.h"
#include "protocol/log/log.h"

namespace smolvm::guest {
namespace {

constexpr uint64_t kOwnLogBytes = 4096;

// Option values are 32 bits wide, sizes included (CUjit_option's documentation).
uint32_t SizeIn(void* value) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(value)); }

}  // namespace

CUresult JitOptions::Read(unsigned count, CUjit_option* option_keys, void** option_values) {
  if (count > 0 && (!option_keys || !option_values)) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; ++i) {
    void*& value = option_values[i];
    if (api::JitOptionIsAddress(option_keys[i])) {
      if (!value) continue;  // no list
      log::Warn("event=not_supported what=\"JIT option {}\"", static_cast<int>(option_keys[i]));
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    switch (option_keys[i]) {
      case CU_JIT_INFO_LOG_BUFFER:
        info_.buffer = static_cast<char*>(value);
        continue;
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.buffer = static_cast<char*>(value);
        continue;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.size = &value;
        info_.capacity = SizeIn(value);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.size = &value;
        error_.capacity = SizeIn(value);
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = &value;
        break;
      default:
        break;
    }
    keys.push_back(option_keys[i]);
    values.push_back(SizeIn(value));
  }
  return CUDA_SUCCESS;
}

void JitOptions::WantErrorLog() {
  if (error_.size || log::Threshold() < log::Level::kError) return;
  keys.push_back(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
  values.push_back(kOwnLogBytes);
}

void JitOptions::LogRefusal(const char* event, uint32_t status, std::string_view error_log) {
  while (error_log.ends_with('\n')) error_log.remove_suffix(1);
  const char* text = exports::ErrorString(static_cast<int>(status));
  if (error_log.empty() && text) error_log = text;
  log::Error("event={} result={} reason={}", event, status, log::Quote(error_log));
}

void JitOptions::StoreLog(const Log& log, const std::string& text) {
  if (!log.size) return;
  const size_t length = log.capacity == 0 ? 0 : std::min(text.size(), log.capacity - 1);
  if (log.buffer && log.capacity > 0) {
    memcpy(log.buffer, text.data(), length);
    log.buffer[length] = '\0';
  }
  *log.size = reinterpret_cast<void*>(length);
}

void JitOptions::Store(const std::string& info_log, const std::string& error_log,
                       float wall_time_ms) const {
  StoreLog(info_, info_log);
  StoreLog(error_, error_log);
  if (wall_time_) memcpy(wall_time_, &wall_time_ms, sizeof wall_time_ms);
}

}  // namespace smolvm::guest
