// Contexts: what a program's streams, memory and modules belong to.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "host-daemon/emulation/device/stream.h"

namespace smolvm::emulation {

class Module;

// Lifetime: shared by the handle table and by the threads in which it is current. After End it is
// an empty shell, and calls that meet it answer CUDA_ERROR_CONTEXT_IS_DESTROYED. Threads: every
// function may be called from any thread.
class Context : public std::enable_shared_from_this<Context> {
 public:
  explicit Context(bool primary, unsigned flags);

  // Makes the streams; the context can be used afterwards. A primary context begins anew after each
  // End.
  void Begin();
  // Waits for all work, then ends everything that belongs to the context: memory, streams, events,
  // modules.
  void End();

  bool alive() const { return alive_.load(std::memory_order_acquire); }
  CUcontext handle() { return reinterpret_cast<CUcontext>(this); }
  bool primary() const { return primary_; }
  uint64_t id() const { return id_.load(std::memory_order_relaxed); }
  unsigned flags() const { return flags_.load(std::memory_order_relaxed); }
  void set_flags(unsigned flags) { flags_.store(flags, std::memory_order_relaxed); }

  // Null after End.
  std::shared_ptr<StreamGroup> group() const;
  // Its own fault; CUDA_SUCCESS when it has none.
  CUresult fault() const;

  // CUDA_ERROR_UNSUPPORTED_LIMIT for a limit that the device does not have.
  CUresult GetLimit(CUlimit limit, size_t* value) const;
  CUresult SetLimit(CUlimit limit, size_t value);
  size_t stack_bytes() const;

  CUfunc_cache cache_config() const { return cache_config_.load(std::memory_order_relaxed); }
  void set_cache_config(CUfunc_cache config) {
    cache_config_.store(config, std::memory_order_relaxed);
  }

  void AddModule(std::shared_ptr<Module> module);
  void RemoveModule(const Module* module);
  void AddEvent(CUevent event);
  void RemoveEvent(CUevent event);

  std::atomic<int> attach_count{1};  // cuCtxAttach, cuCtxDetach

 private:
  const bool primary_;
  std::atomic<bool> alive_{false};
  std::atomic<uint64_t> id_{0};
  std::atomic<unsigned> flags_;
  std::atomic<CUfunc_cache> cache_config_{CU_FUNC_CACHE_PREFER_NONE};

  mutable std::mutex mutex_;
  std::shared_ptr<StreamGroup> group_;
  std::map<CUlimit, size_t> limits_;
  std::set<std::shared_ptr<Module>> modules_;
  std::set<CUevent> events_;
};

// The device's primary context and its uses. The handle stays the same for ever.
class PrimaryContext {
 public:
  std::shared_ptr<Context> Retain();
  CUresult Release();
  // Ends everything in it. While it is retained it can be used at once again.
  CUresult Reset();
  CUresult SetFlags(unsigned flags);
  void GetState(unsigned* flags, bool* active);
  // A call uses it: after a reset it counts as active from then on.
  void Touch() { active_.store(true, std::memory_order_relaxed); }
  bool active() const { return active_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  std::shared_ptr<Context> context_;
  std::atomic<bool> active_{false};
  unsigned flags_ = 0;
  int uses_ = 0;
};

// Whether cuCtxCreate may take these flags.
CUresult CheckContextFlags(unsigned flags);

}  // namespace smolvm::emulation
