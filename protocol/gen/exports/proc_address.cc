#include "protocol/gen/exports/proc_address.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "protocol/gen/exports/unsupported.h"

namespace smolvm::exports {
namespace {

constexpr int kSuccess = 0;             // CUDA_SUCCESS
constexpr int kInvalidValue = 1;        // CUDA_ERROR_INVALID_VALUE
constexpr int kNotFoundError = 500;     // CUDA_ERROR_NOT_FOUND
constexpr uint64_t kPerThreadFlag = 2;  // CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
constexpr uint64_t kKnownFlags = 3;

struct Row {
  std::string_view base;
  bool per_thread;
  int version;
  const char* symbol;
};

constexpr Row kRows[] = {
#include "proc_address_table.inc"
};

// The newest row of `name` and variant that is not newer than `version`. `known` becomes true when
// any row exists.
const char* Newest(std::string_view name, bool per_thread, int version, bool* known) {
  const auto before = [](const Row& row, const std::tuple<std::string_view, bool>& key) {
    return std::tuple(row.base, row.per_thread) < key;
  };
  const char* symbol = nullptr;
  const Row* row =
      std::lower_bound(std::begin(kRows), std::end(kRows), std::tuple(name, per_thread), before);
  for (; row != std::end(kRows) && row->base == name && row->per_thread == per_thread; ++row) {
    *known = true;
    if (row->version <= version) symbol = row->symbol;
  }
  return symbol;
}

}  // namespace

ProcLookup FindProc(std::string_view name, int version, uint64_t flags) {
  bool known = false;
  const char* symbol = nullptr;
  if (flags & kPerThreadFlag) symbol = Newest(name, true, version, &known);
  if (symbol == nullptr) symbol = Newest(name, false, version, &known);
  if (symbol != nullptr) return {ProcStatus::kFound, symbol};
  return {known ? ProcStatus::kVersionNotSufficient : ProcStatus::kNotFound, nullptr};
}

int GetProcAddressV1(const char* name, void** pfn, int version, int driver, uint64_t flags) {
  if (name == nullptr || pfn == nullptr || flags > kKnownFlags || version > driver)
    return kInvalidValue;
  const ProcLookup found = FindProc(name, version, flags);
  if (found.symbol == nullptr) return kNotFoundError;
  *pfn = ExportAddress(found.symbol);
  return kSuccess;
}

int GetProcAddressV2(const char* name, void** pfn, int version, int driver, uint64_t flags,
                     int* status) {
  if (name == nullptr || pfn == nullptr || flags > kKnownFlags || version > driver)
    return kInvalidValue;
  const ProcLookup found = FindProc(name, version, flags);
  *pfn = found.symbol == nullptr ? nullptr : ExportAddress(found.symbol);
  if (status != nullptr) *status = static_cast<int>(found.status);
  return kSuccess;
}

}  // namespace smolvm::exports
