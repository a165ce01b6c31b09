#include "host-daemon/emulation/codegen/llvm_lease.h"

#include <atomic>
#include <cstdlib>

namespace smolvm::emulation::codegen {
namespace {

// After so many compilations LLVM has made its globals.
constexpr int kMostRegistrations = 32;

std::mutex g_mutex;
std::atomic<bool> g_has_ended{false};
int g_registrations = 0;

// Said before waiting: a thread that compiles one kernel after the other would have the mutex again
// before this one wakes, any number of times.
void End() {
  g_has_ended = true;
  std::lock_guard lock(g_mutex);
}

}  // namespace

LlvmLease::LlvmLease() : lock_(g_mutex), is_valid_(!g_has_ended) {}

LlvmLease::~LlvmLease() {
  if (is_valid_ && g_registrations < kMostRegistrations && atexit(&End) == 0) ++g_registrations;
}

}  // namespace smolvm::emulation::codegen
