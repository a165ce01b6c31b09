#include "machine/supervise/ready_timeout.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

#include "machine/guest/qemu.h"

namespace smolvm::machine {
namespace {

constexpr uint32_t kReadySeconds = 30;
constexpr uint32_t kEmulatedFactor = 10;

bool IsEmulated(const MachineRecord& record) { return record.runs_on != NameOf(Accelerator::kKvm); }

// The last line that says something, without control characters.
std::string LastWords(const std::string& console) {
  std::string last, line;
  for (const char c : console + "\n") {
    if (c != '\n' && c != '\r') {
      if (static_cast<unsigned char>(c) >= ' ') line += c;
      continue;
    }
    if (!line.empty()) last = line;
    line.clear();
  }
  return last;
}

}  // namespace

uint32_t ReadyTimeout(const MachineRecord& record) {
  if (record.ready_timeout_s > 0) return record.ready_timeout_s;
  return IsEmulated(record) ? kReadySeconds * kEmulatedFactor : kReadySeconds;
}

HostMemory AskHostMemory() {
  HostMemory memory;
  std::ifstream info("/proc/meminfo");
  std::string line;
  while (std::getline(info, line)) {
    unsigned long long kib = 0;
    if (std::sscanf(line.c_str(), "MemTotal: %llu", &kib) == 1) memory.total_mib = kib >> 10;
    if (std::sscanf(line.c_str(), "MemAvailable: %llu", &kib) == 1) {
      memory.available_mib = kib >> 10;
    }
  }
  return memory;
}

std::string ExplainReadyTimeout(const MachineRecord& record, const std::string& console) {
  const HostMemory memory = AskHostMemory();
  std::string cause;
  if (record.memory_mib > memory.available_mib) {
    cause = fmt::format(
        "it asks for {} MiB of memory and this host has {} MiB to give; try a "
        "smaller --mem",
        record.memory_mib, memory.available_mib);
  } else if (IsEmulated(record)) {
    cause = "it is emulated and the host may be busy; try a longer --ready-timeout";
  } else {
    cause = "try a longer --ready-timeout, or --accelerator tcg";
  }
  const std::string words = LastWords(console);
  return fmt::format("the machine was not ready within {} s: {}{}", ReadyTimeout(record), cause,
                     words.empty() ? "" : "; its console's last line: " + words);
}

}  // namespace smolvm::machine
