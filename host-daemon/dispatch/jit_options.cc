#include "host-daemon/dispatch/jit_options.h"

#include <algorithm>
#include <cstring>

#include "protocol/api/attributes.h"
#include "protocol/wire/frame.h"

namespace smolvm::dispatch {
namespace {

// Bounds on what one session can make the worker keep for a call. Both logs fit into one reply.
constexpr size_t kMaxLogBytes = 96 * 1024;
static_assert(2 * kMaxLogBytes < wire::kMaxArgsBytes);
constexpr size_t kMaxJitOptions = 64;

}  // namespace

bool JitOptions::Read(const std::vector<uint32_t>& keys, const std::vector<uint64_t>& values) {
  if (keys.size() != values.size() || keys.size() > kMaxJitOptions) return false;
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto key = static_cast<CUjit_option>(keys[i]);
    if (api::JitOptionIsAddress(key)) return false;
    switch (key) {
      case CU_JIT_INFO_LOG_BUFFER:
      case CU_JIT_ERROR_LOG_BUFFER:
        return false;  // they stay in the guest
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        AddLog(CU_JIT_INFO_LOG_BUFFER, key, values[i], &info_, &info_size_);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        AddLog(CU_JIT_ERROR_LOG_BUFFER, key, values[i], &error_, &error_size_);
        break;
      case CU_JIT_WALL_TIME:
        wall_time_ = keys_.size();
        [[fallthrough]];
      default:
        keys_.push_back(key);
        values_.push_back(
            reinterpret_cast<void*>(static_cast<uintptr_t>(static_cast<uint32_t>(values[i]))));
    }
  }
  return true;
}

void JitOptions::AddLog(CUjit_option buffer, CUjit_option size, uint64_t wanted, std::string* log,
                        std::optional<size_t>* at) {
  if (*at) return;  // named twice: the first buffer is the driver's already
  log->assign(std::min<uint64_t>(wanted, kMaxLogBytes), '\0');
  keys_.push_back(buffer);
  values_.push_back(log->data());
  *at = keys_.size();
  keys_.push_back(size);
  values_.push_back(reinterpret_cast<void*>(log->size()));
}

// The driver has replaced the size by what it wrote; its text ends at the first NUL in any case.
std::string JitOptions::Text(const std::string& log, std::optional<size_t> at) const {
  if (!at) return {};
  const auto written = std::min(reinterpret_cast<size_t>(values_[*at]), log.size());
  return std::string(log.data(), strnlen(log.data(), written));
}

// The driver stores a float where the option's value was (cuModuleLoadDataEx, CU_JIT_WALL_TIME).
float JitOptions::WallTime() const {
  float milliseconds = 0;
  if (wall_time_) memcpy(&milliseconds, &values_[*wall_time_], sizeof milliseconds);
  return milliseconds;
}

}  // namespace smolvm::dispatch
