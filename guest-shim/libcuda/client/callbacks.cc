#include "guest-shim/libcuda/client/callbacks.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "guest-shim/libcuda/client/hello.h"
#include "guest-shim/libcuda/state/session.h"
#include "protocol/api/call_ids.h"
#include "protocol/log/log.h"
#include "protocol/wire/frame.h"

namespace smolvm::guest {

uint64_t Callbacks::Register(const HostFunction& function, CUresult* result) {
  const std::lock_guard lock(mutex_);
  *result = started_ ? CUDA_SUCCESS : Start();
  if (*result != CUDA_SUCCESS) return 0;
  functions_[next_id_] = function;
  outstanding_.store(functions_.size(), std::memory_order_release);
  return next_id_++;
}

void Callbacks::Forget(uint64_t id) {
  const std::lock_guard lock(mutex_);
  functions_.erase(id);
  outstanding_.store(functions_.size(), std::memory_order_release);
}

void Callbacks::Abandon() {
  if (channel_) close(channel_->fd());
}

CUresult Callbacks::Start() {
  api::HelloReply reply;
  CUresult result = CUDA_ERROR_UNKNOWN;
  channel_ = OpenChannel(session_.hello().callback_token, &reply, &result);
  if (!channel_) return result;
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  pthread_t thread;
  const int error = pthread_create(
      &thread, nullptr,
      [](void* self) -> void* {
        static_cast<Callbacks*>(self)->Loop();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  if (error != 0) {
    channel_.reset();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  pthread_detach(thread);
  started_ = true;
  return CUDA_SUCCESS;
}

void Callbacks::Loop() {
  CurrentLane().in_callback = true;
  while (RunOne()) {
  }
  channel_->Shutdown();
  log::Debug("event=callback_connection_ended");
}

bool Callbacks::RunOne() {
  wire::FrameHeader header;
  if (!channel_->Read(&header, sizeof header)) return false;
  if (header.call_id != wire::kHostCallback || header.args_length > wire::kMaxArgsBytes ||
      header.bulk_length != 0) {
    return false;
  }
  std::string args(header.args_length, '\0');
  api::HostCallback request;
  if (!channel_->Read(args.data(), args.size()) || !Decode(args, &request)) return false;
  HostFunction function;
  {
    const std::lock_guard lock(mutex_);
    const auto found = functions_.find(request.id);
    if (found == functions_.end()) return false;
    function = found->second;
  }
  // Copies back that the stream has finished before this function must be in place when it runs:
  // any reply brings them.
  if (session_.connection().AnyCopyBackPending()) {
    Reply reply;
    session_.connection().Call(api::id::cuCtxGetCurrent, 0, CurrentLane().id, {}, {}, &reply);
  }
  if (function.function) {
    function.function(function.user_data);
  } else {
    function.callback(function.stream, static_cast<CUresult>(request.status), function.user_data);
  }
  Forget(request.id);
  wire::FrameHeader answer;
  answer.call_id = wire::kHostCallback;
  answer.flags = wire::kFlagReply;
  answer.sequence = header.sequence;
  return channel_->Write(&answer, sizeof answer);
}

}  // namespace smolvm::guest
