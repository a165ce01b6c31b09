// What a limit on a process's address space (`ulimit -v`, systemd's LimitAS) denies, in numbers:
// the system's own "Cannot allocate memory" reads like a host that is out of memory.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <optional>
#include <string>

namespace smolvm {

// This process's limit in bytes; nothing when there is none.
inline std::optional<uint64_t> AddressSpaceLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// To be added to a failure that may be the limit's; "" when there is none.
inline std::string AddressSpaceNote() {
  const auto limit = AddressSpaceLimit();
  if (!limit) return {};
  return "; the address space is limited to " + std::to_string(*limit >> 10) +
         " KiB here (ulimit -v)";
}

// "" when `needed` bytes are allowed; otherwise says how much `what` needs, and what is allowed.
inline std::string AddressSpaceDenial(const std::string& what, uint64_t needed) {
  const auto limit = AddressSpaceLimit();
  if (!limit || *limit >= needed) return {};
  return what + " needs " + std::to_string((needed + 1023) >> 10) + " KiB of address space" +
         AddressSpaceNote();
}

}  // namespace smolvm
