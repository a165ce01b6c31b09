#include "host-daemon/session/sender.h"

namespace smolvm::session {
namespace {

// Below this, copying bulk into the queue is cheaper than a system call of its own.
constexpr size_t kGatheredBulkBytes = 16 * 1024;
constexpr size_t kQueueBytes = 64 * 1024;

}  // namespace

bool Sender::Add(wire::FrameHeader header, std::span<const char> args, std::span<const char> bulk) {
  header.args_length = static_cast<uint32_t>(args.size());
  header.bulk_length = bulk.size();
  char bytes[wire::kFrameHeaderBytes];
  wire::StoreFrameHeader(header, bytes);
  queue_.append(bytes, sizeof bytes);
  queue_.append(args.data(), args.size());
  if (bulk.size() < kGatheredBulkBytes) {
    queue_.append(bulk.data(), bulk.size());
    return queue_.size() < kQueueBytes || Flush();
  }
  iovec parts[] = {{queue_.data(), queue_.size()}, {const_cast<char*>(bulk.data()), bulk.size()}};
  return Sent(channel_.Write(parts, 2));
}

bool Sender::Sent(bool whole) {
  queue_.clear();
  if (!whole) channel_.Shutdown();
  return whole;
}

bool Sender::Flush() {
  if (queue_.empty()) return true;
  return Sent(channel_.Write(queue_.data(), queue_.size()));
}

}  // namespace smolvm::session
