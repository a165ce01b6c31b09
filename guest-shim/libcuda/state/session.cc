#include "guest-shim/libcuda/state/session.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdlib>
#include <cstring>

#include "guest-shim/libcuda/client/callbacks.h"
#include "guest-shim/libcuda/client/hello.h"
#include "guest-shim/libcuda/state/visible_devices.h"
#include "protocol/api/call_ids.h"
#include "protocol/log/log.h"
#include "protocol/transport/endpoint.h"

namespace smolvm::guest {
namespace {

// Leaked on purpose: programs call the driver from atexit handlers that run after static
// destructors.
std::atomic<Session*> g_session{nullptr};
std::atomic<bool> g_forked{false};
std::mutex& InitMutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

void InForkedChild() {
  // The session is the parent's. Only async-signal-safe work may be done here.
  Session* session = g_session.load(std::memory_order_acquire);
  if (!session) return;
  g_forked.store(true, std::memory_order_release);
  session->connection().Abandon();
  session->callbacks().Abandon();
}

// pthread_exit and pthread_cancel unwind through our frames with the unwinder that is linked in
// here; one that was never used before aborts.
__attribute__((constructor)) void WakeUnwinder() {
  _Unwind_Backtrace([](_Unwind_Context*, void*) { return _URC_END_OF_STACK; }, nullptr);
}

std::atomic<uint32_t> g_next_lane{1};

}  // namespace

Session::~Session() = default;

std::string EndpointText() {
  const char* text = getenv("SMOLVM_CUDA_ENDPOINT");
  return text && *text ? text : transport::kDefaultEndpoint;
}

std::unique_ptr<Session> Session::Open(CUresult* result) {
  auto session = std::unique_ptr<Session>(new Session);
  auto channel = OpenChannel({}, &session->hello_, result);
  if (!channel) return nullptr;
  const char* visible = getenv("CUDA_VISIBLE_DEVICES");
  session->visible_ = VisibleDevices(session->hello_.devices, visible);
  if (session->visible_.empty()) {
    log::Error("event=no_device devices={} visible={}", session->hello_.devices.size(),
               visible ? log::Quote(visible) : "unset");
    *result = CUDA_ERROR_NO_DEVICE;
    return nullptr;
  }
  session->connection_ = std::make_unique<Connection>(std::move(channel));
  session->callbacks_ = std::make_unique<Callbacks>(*session);
  *result = CUDA_SUCCESS;
  return session;
}

bool Session::HostKnows(uint32_t call_id) const {
  const size_t byte = call_id / 8;
  return byte < hello_.known_calls.size() && hello_.known_calls[byte] >> call_id % 8 & 1;
}

void Session::ContextSeen(uint64_t id) {
  if (id == 0) return;
  const std::lock_guard lock(contexts_mutex_);
  contexts_.insert(id);
  contexts_alive_.store(contexts_.size(), std::memory_order_release);
}

void Session::ContextGone(uint64_t id) {
  const std::lock_guard lock(contexts_mutex_);
  contexts_.erase(id);
  contexts_alive_.store(contexts_.size(), std::memory_order_release);
}

Session* CurrentSession() {
  return g_forked.load(std::memory_order_acquire) ? nullptr
                                                  : g_session.load(std::memory_order_acquire);
}

CUresult InitialiseSession() {
  const std::lock_guard lock(InitMutex());
  if (g_forked.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
  if (g_session.load(std::memory_order_acquire)) return CUDA_SUCCESS;
  log::SetComponent("libcuda");
  log::Threshold();  // a level that is none is told here, whether or not there is more to tell
  CUresult result = CUDA_ERROR_UNKNOWN;
  auto session = Session::Open(&result);
  if (!session) return result;
  static const bool handler = pthread_atfork(nullptr, nullptr, InForkedChild) == 0;
  if (!handler) return CUDA_ERROR_OUT_OF_MEMORY;
  g_session.store(session.release(), std::memory_order_release);
  return CUDA_SUCCESS;
}

namespace {

// Plain, so that it outlives the thread's destructors: handlers of exit() run after those of the
// thread that exits, and make calls.
thread_local Lane* t_lane = nullptr;

struct EndLane {
  ~EndLane() {
    // The first thread goes with the process, or leaves its lane to the session's end.
    if (!t_lane || getpid() == static_cast<pid_t>(syscall(SYS_gettid))) return;
    Session* session = CurrentSession();
    if (session && !session->connection().dead())
      session->connection().Post(wire::kLaneEnds, 0, t_lane->id, {}, {});
    delete t_lane;
    t_lane = nullptr;
  }
};

Lane* NewLane() {
  static thread_local EndLane end;
  (void)end;
  auto* lane = new Lane;
  lane->id = g_next_lane.fetch_add(1, std::memory_order_relaxed);
  return lane;
}

}  // namespace

Lane& CurrentLane() {
  if (!t_lane) t_lane = NewLane();
  return *t_lane;
}

}  // namespace smolvm::guest
