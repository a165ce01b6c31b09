// The library's state: one Driver per process, made by cuInit and never destroyed, since programs
// call CUDA from atexit handlers that run after this library's static destructors would have.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "host-daemon/emulation/api/context.h"
#include "host-daemon/emulation/api/event.h"
#include "host-daemon/emulation/api/handles.h"
#include "host-daemon/emulation/api/link.h"
#include "host-daemon/emulation/api/module.h"
#include "host-daemon/emulation/api/pool.h"
#include "host-daemon/emulation/device/arena.h"
#include "host-daemon/emulation/device/memory_map.h"
#include "host-daemon/emulation/device/settings.h"
#include "host-daemon/emulation/device/stream.h"

namespace smolvm::emulation {

inline constexpr CUdevice kDevice = 0;  // the only one

struct Driver {
  explicit Driver(const Settings& settings, Arena* arena) : settings(settings), arena(*arena) {}

  const Settings settings;
  Arena& arena;
  MemoryMap memory;

  HandleTable<CUcontext, Context> contexts;
  HandleTable<CUstream, Stream> streams;
  HandleTable<CUevent, Event> events;
  HandleTable<CUmodule, Module> modules;
  HandleTable<CUfunction, Function> functions;
  HandleTable<CUlibrary, Library> libraries;
  HandleTable<CUkernel, Kernel> kernels;
  HandleTable<CUlinkState, LinkState> links;
  HandleTable<CUmemoryPool, Pool> pools;

  PrimaryContext primary;
  std::shared_ptr<Pool> default_pool;
  std::mutex current_pool_mutex;
  std::shared_ptr<Pool> current_pool;  // cuDeviceSetMemPool
};

// The driver, once cuInit has succeeded; only after Ready().
Driver& TheDriver();

// CUDA_SUCCESS, _NOT_INITIALIZED (before cuInit, and for ever in a child of fork) or _NOT_PERMITTED
// (in a callback).
CUresult Ready();
CUresult Initialise(unsigned flags);

// What one thread has. Freed when the thread ends, but not the main thread's: its atexit handlers
// still use it.
struct ThreadState {
  std::vector<std::shared_ptr<Context>> stack;  // the last is current
  struct DefaultStream {
    std::weak_ptr<StreamGroup> group;
    std::shared_ptr<Stream> stream;
  };
  std::vector<DefaultStream>
      default_streams;  // one per context used with per-thread default streams
  CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
};
ThreadState& ThisThread();

// The current context if it can be used: CUDA_ERROR_INVALID_CONTEXT when there is none,
// _CONTEXT_IS_DESTROYED when it has ended, its fault when it has one. Valid while it stays current
// in this thread.
CUresult CurrentContext(Context** context);
// Finds a context by handle; NULL means the current one. CUDA_ERROR_INVALID_CONTEXT when it is
// none.
CUresult FindContext(CUcontext handle, std::shared_ptr<Context>* context);

// Finds a stream; CU_STREAM_LEGACY and CU_STREAM_PER_THREAD are those of the current context. An
// entry point has already replaced NULL by one of them.
CUresult FindStream(CUstream handle, std::shared_ptr<Stream>* stream);

// CUDA_ERROR_INVALID_DEVICE unless `device` is the one.
inline CUresult CheckDevice(CUdevice device) {
  return device == kDevice ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// The fault of the context that `stream` belongs to, as a result.
inline CUresult FaultOf(const Stream& stream) {
  return static_cast<CUresult>(stream.group().fault());
}

}  // namespace smolvm::emulation
