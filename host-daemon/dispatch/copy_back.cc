#include "host-daemon/dispatch/copy_back.h"

#include <algorithm>
#include <string>
#include <utility>

#include "protocol/api/session.wire.h"
#include "protocol/wire/frame.h"

namespace smolvm::dispatch {
namespace {

bool Send(session::Session& session, uint64_t copy_id, const char* data, size_t size,
          CUresult status) {
  std::string args;
  size_t offset = 0;
  do {
    const size_t piece =
        status == CUDA_SUCCESS ? std::min<size_t>(size - offset, wire::kMaxReplyPieceBytes) : 0;
    const bool last = status != CUDA_SUCCESS || offset + piece == size;
    args.clear();
    Encode(api::CopyBack{copy_id, offset, last, static_cast<uint32_t>(status)}, &args);
    if (!session.SendAhead(wire::kCopyBack, args, {data + offset, piece})) return false;
    offset += piece;
    if (last) return true;
  } while (true);
}

}  // namespace

void CopiesBack::Append(Pending pending) {
  const std::lock_guard lock(mutex_);
  if (pending.source.data) put_off_.fetch_add(1, std::memory_order_acq_rel);
  pending_.push_back(std::move(pending));
  count_.store(pending_.size(), std::memory_order_release);
}

void CopiesBack::Add(uint64_t copy_id, StagingBuffer buffer, size_t size, CUevent done) {
  Append({copy_id, std::move(buffer), size, done, {}});
}

void CopiesBack::PutOff(uint64_t copy_id, StagingBuffer buffer, size_t size, CUevent done,
                        Source source) {
  Append({copy_id, std::move(buffer), size, done, source});
}

void CopiesBack::BeginAll() {
  const std::lock_guard lock(mutex_);
  for (Pending& copy : pending_) {
    if (!copy.source.data) continue;
    copy.failure = BeginOne(copy);
    copy.source = {};
  }
  put_off_.store(0, std::memory_order_release);
}

// The thread that is served now may have another context, or none.
CUresult CopiesBack::BeginOne(const Pending& copy) const {
  if (const CUresult result = driver_.cuCtxPushCurrent_v2(copy.source.context)) return result;
  CUresult result = driver_.cuMemcpyDtoHAsync_v2(copy.buffer.data(),
                                                 reinterpret_cast<CUdeviceptr>(copy.source.data),
                                                 copy.size, copy.source.stream);
  if (result == CUDA_SUCCESS) result = driver_.cuEventRecord(copy.done, copy.source.stream);
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent_v2(&popped);
  return result;
}

void CopiesBack::SendFinished(session::Session& session) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  // Streams finish in any order among themselves, so every pending copy is asked.
  for (auto copy = pending_.begin(); copy != pending_.end();) {
    const CUresult status = copy->failure ? copy->failure : driver_.cuEventQuery(copy->done);
    if (status == CUDA_ERROR_NOT_READY) {
      ++copy;
      continue;
    }
    const char* bytes = copy->source.data ? copy->source.data : copy->buffer.data();
    if (copy->copy_id != kNothingToSend) Send(session, copy->copy_id, bytes, copy->size, status);
    if (copy->source.data) put_off_.fetch_sub(1, std::memory_order_acq_rel);
    driver_.cuEventDestroy_v2(copy->done);
    copy = pending_.erase(copy);
  }
  count_.store(pending_.size(), std::memory_order_release);
}

}  // namespace smolvm::dispatch
