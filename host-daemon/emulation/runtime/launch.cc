#include "host-daemon/emulation/runtime/launch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <thread>

#include "host-daemon/emulation/runtime/pool.h"
#include "host-daemon/emulation/runtime/watchdog.h"
#include "host-daemon/emulation/runtime/worker.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

// More than any device has; a launch beyond it is refused before memory is reserved for it.
constexpr uint64_t kMaxSharedBytes = 1 << 20;
constexpr uint64_t kMaxLocalBytes = 1 << 20;

std::atomic<uint64_t> g_grids{0};

uint64_t RoundUp(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

bool Prepare(const KernelCode& code, const LaunchConfig& config, Launch* launch) {
  const auto& [gx, gy, gz] = config.grid;
  const auto& [bx, by, bz] = config.block;
  const uint64_t threads = uint64_t{bx} * by;
  if (gx == 0 || gy == 0 || gz == 0 || bx == 0 || by == 0 || bz == 0 || bx > 1024 || by > 1024 ||
      bz > 64)
    return false;
  if (threads * bz > kMaxWarps * kWarpSize || gx > INT32_MAX || gy > 65535 || gz > 65535)
    return false;
  launch->threads_per_block = static_cast<uint32_t>(threads * bz);
  launch->block_count = uint64_t{gx} * gy * gz;
  if (config.dynamic_shared_bytes > kMaxSharedBytes || code.static_shared_bytes > kMaxSharedBytes)
    return false;
  launch->shared_bytes = RoundUp(code.static_shared_bytes + config.dynamic_shared_bytes, 256);
  launch->local_bytes =
      code.local_bytes + (code.unbounded_stack ? config.stack_bytes_per_thread : 0);
  if (launch->local_bytes > kMaxLocalBytes) return false;
  // An odd number of cache lines, so that the same variable of many threads spreads over the
  // cache's sets.
  if (launch->local_bytes != 0) launch->local_bytes = RoundUp(launch->local_bytes, 64) | 64;
  return true;
}

}  // namespace

void Launch::Fail(CUresult result, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (result_ != CUDA_SUCCESS) return;
    result_ = result;
  }
  cancelled.store(true);
  log::Error("event=kernel_fault kernel={} result={} reason={}", log::Quote(code->name),
             static_cast<int>(result), why);
}

CUresult Launch::result() {
  std::lock_guard lock(mutex_);
  return result_;
}

CUresult RunGrid(const KernelCode& code, const LaunchConfig& config, Arena& arena,
                 std::span<const std::byte> params) {
  Launch launch;
  launch.code = &code;
  launch.config = &config;
  launch.arena = &arena;
  launch.scratch = &Scratch::Of(arena);
  if (code.vector_tier != nullptr && code.vector_tier->Suits(config.block))
    launch.vector_tier = code.vector_tier.get();
  if (!Prepare(code, config, &launch)) return CUDA_ERROR_INVALID_VALUE;
  InstallFaultHandlers(arena);
  const uint64_t workspace_offset = RoundUp(params.size(), 64);
  const ScratchPiece param_block(*launch.scratch, workspace_offset + kGridWorkspaceBytes);
  if (param_block.address() == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!params.empty()) {
    memcpy(reinterpret_cast<void*>(param_block.address()), params.data(), params.size());
  }
  launch.params = param_block.address();
  launch.param_bytes = params.size();
  launch.grid_workspace = param_block.address() + workspace_offset;
  const uint32_t workspace[2] = {kGridWorkspaceBytes, 0};
  memcpy(reinterpret_cast<void*>(launch.grid_workspace), workspace, sizeof workspace);
  launch.grid_id = g_grids.fetch_add(1, std::memory_order_relaxed) + 1;
  const Watchdog::Watch watch(launch, config.timeout_ms);
  if (launch.block_count == 1) {
    Worker::Current().Run(launch, false);
  } else {
    WorkPool& pool = WorkPool::Get();
    pool.Run([&launch](bool is_helper) { return Worker::Current().Run(launch, is_helper); },
             std::min<uint64_t>(pool.size(), launch.block_count) - 1, config.priority);
  }
  return launch.result();
}

}  // namespace smolvm::emulation
