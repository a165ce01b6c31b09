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

void CopiesBack::Add(uint64_t copy_id, StagingBuffer buffer, size_t size, CUevent done) {
  const std::lock_guard lock(mutex_);
  pending_.push_back({copy_id, std::move(buffer), size, done});
  count_.store(pending_.size(), std::memory_order_release);
}

void CopiesBack::SendFinished(session::Session& session) {
  if (count_.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard lock(mutex_);
  // Streams finish in any order among themselves, so every pending copy is asked.
  for (auto copy = pending_.begin(); copy != pending_.end();) {
    const CUresult status = driver_.cuEventQuery(copy->done);
    if (status == CUDA_ERROR_NOT_READY) {
      ++copy;
      continue;
    }
    if (copy->copy_id != kNothingToSend)
      Send(session, copy->copy_id, copy->buffer.data(), copy->size, status);
    driver_.cuEventDestroy_v2(copy->done);
    copy = pending_.erase(copy);
  }
  count_.store(pending_.size(), std::memory_order_release);
}

}  // namespace smolvm::dispatch
