#include "protocol/gen/exports/unsupported.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>

#include "protocol/log/log.h"

namespace {

constexpr int kNotSupported = 801;  // CUDA_ERROR_NOT_SUPPORTED

std::atomic<int (*)()> unsupported_guard{nullptr};

bool FirstTime(const char* name) {
  // Never destroyed: programs call the driver from atexit handlers.
  static auto* mutex = new std::mutex;
  static auto* seen = new std::set<const char*>;  // each stub passes one pointer, always the same
  std::lock_guard lock(*mutex);
  return seen->insert(name).second;
}

}  // namespace

extern "C" int smolvm_unsupported_call(const char* name) {
  if (auto guard = unsupported_guard.load(std::memory_order_acquire))
    if (const int refused = guard()) return refused;
  if (FirstTime(name)) smolvm::log::Warn("event=unsupported_call call={}", name);
  return kNotSupported;
}

namespace smolvm::exports {

void SetUnsupportedGuard(int (*guard)()) {
  unsupported_guard.store(guard, std::memory_order_release);
}

void* ExportAddress(const char* symbol) {
  const SmolvmExport* end = smolvm_export_table + smolvm_export_count;
  const SmolvmExport* found = std::lower_bound(
      smolvm_export_table, end, symbol,
      [](const SmolvmExport& row, const char* name) { return std::strcmp(row.name, name) < 0; });
  return found != end && std::strcmp(found->name, symbol) == 0 ? found->address : nullptr;
}

}  // namespace smolvm::exports
