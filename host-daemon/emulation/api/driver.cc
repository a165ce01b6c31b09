#include "host-daemon/emulation/api/driver.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "host-daemon/emulation/device/kernel_memory.h"
#include "protocol/api/values.h"
#include "protocol/gen/exports/unsupported.h"
#include "protocol/log/log.h"

namespace smolvm::emulation {
namespace {

std::atomic<Driver*> driver{nullptr};
std::atomic<bool> forked{false};

pthread_key_t thread_state_key;
// A plain pointer, so that it outlives C++'s thread-local destructors: atexit handlers run after
// those.
thread_local ThreadState* thread_state = nullptr;

void EndThread(void* state) {
  auto* ended = static_cast<ThreadState*>(state);
  thread_state = nullptr;
  for (const auto& each : ended->default_streams) {
    if (const auto group = each.group.lock()) group->Remove(each.stream.get());
    each.stream->Close();
  }
  delete ended;
}

void InChild() {
  forked.store(true, std::memory_order_relaxed);
  driver.store(nullptr,
               std::memory_order_relaxed);  // its threads are gone and its locks may be held
}

CUresult Start() {
  std::string error;
  const auto settings = ReadSettings(&error);
  if (!settings) {
    log::Error("event=init_failed reason={}", log::Quote(error));
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!settings->device_visible) return CUDA_ERROR_NO_DEVICE;
  KernelMemory::Get().SetLimit(settings->kernel_memory_bytes);
  Arena* arena = Arena::Create(settings->memory_bytes);
  if (arena == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (pthread_key_create(&thread_state_key, EndThread) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
  pthread_atfork(nullptr, nullptr, InChild);
  auto* made = new Driver(*settings, arena);
  made->default_pool = std::make_shared<Pool>(0);
  made->pools.Add(made->default_pool);
  made->current_pool = made->default_pool;
  log::Info("event=emulation_ready memory_mib={} compute_capability={}.{}",
            settings->memory_bytes >> 20, settings->compute_capability / 10,
            settings->compute_capability % 10);
  driver.store(made, std::memory_order_release);
  return CUDA_SUCCESS;
}

int UnsupportedGuard() { return Ready(); }

std::shared_ptr<Stream> PerThreadStream(const std::shared_ptr<StreamGroup>& group) {
  ThreadState& thread = ThisThread();
  for (const auto& each : thread.default_streams)
    if (each.group.lock() == group) return each.stream;
  std::erase_if(thread.default_streams, [](const auto& each) { return each.group.expired(); });
  auto stream = std::make_shared<Stream>(group, Stream::Kind::kBlocking, 0, 0);
  group->Add(stream);
  thread.default_streams.push_back({group, stream});
  return stream;
}

}  // namespace

// Answers before cuInit too: a stub that is called then says so rather than "not supported".
__attribute__((constructor)) void SetStubGuard() {
  exports::SetUnsupportedGuard(&UnsupportedGuard);
}

Driver& TheDriver() { return *driver.load(std::memory_order_acquire); }

CUresult Ready() {
  if (driver.load(std::memory_order_acquire) == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  return InHostCallback() ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult Initialise(unsigned flags) {
  if (const CUresult result = api::check::cuInit(flags); result != CUDA_SUCCESS) return result;
  if (forked.load(std::memory_order_relaxed)) return CUDA_ERROR_NOT_INITIALIZED;
  if (InHostCallback()) return CUDA_ERROR_NOT_PERMITTED;
  if (driver.load(std::memory_order_acquire) != nullptr) return CUDA_SUCCESS;
  log::Threshold();  // a level that is none is told here, whether or not there is more to tell
  static auto* mutex = new std::mutex;
  std::lock_guard lock(*mutex);
  return driver.load(std::memory_order_acquire) != nullptr ? CUDA_SUCCESS : Start();
}

ThreadState& ThisThread() {
  if (thread_state == nullptr) {
    thread_state = new ThreadState;
    pthread_setspecific(thread_state_key, thread_state);
  }
  return *thread_state;
}

CUresult CurrentContext(Context** context) {
  ThreadState* thread = thread_state;
  if (thread == nullptr || thread->stack.empty() || thread->stack.back() == nullptr)
    return CUDA_ERROR_INVALID_CONTEXT;
  Context* current = thread->stack.back().get();
  if (!current->alive()) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (current->primary() && !TheDriver().primary.active()) TheDriver().primary.Touch();
  *context = current;
  return current->fault();
}

CUresult FindContext(CUcontext handle, std::shared_ptr<Context>* context) {
  if (handle == nullptr) {
    ThreadState& thread = ThisThread();
    if (thread.stack.empty() || thread.stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *context = thread.stack.back();
    return (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  *context = TheDriver().contexts.Find(handle);
  return *context != nullptr && (*context)->alive() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult FindStream(CUstream handle, std::shared_ptr<Stream>* stream) {
  if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    *stream = TheDriver().streams.Find(handle);
    return *stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
  }
  Context* context = nullptr;
  if (const CUresult result = CurrentContext(&context); result != CUDA_SUCCESS) return result;
  const std::shared_ptr<StreamGroup> group = context->group();
  if (group == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  *stream = handle == CU_STREAM_LEGACY ? group->legacy() : PerThreadStream(group);
  return *stream != nullptr ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

}  // namespace smolvm::emulation
