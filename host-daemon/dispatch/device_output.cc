#include "host-daemon/dispatch/device_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "protocol/base/file_status.h"

namespace smolvm::dispatch {
namespace {

constexpr off_t kPieceBytes = 64 * 1024;

}  // namespace

void DeviceOutput::SendNew(session::Session& session) {
  if (fd_ < 0) return;
  std::fflush(frame_ == wire::kDeviceOutput ? stdout : stderr);
  struct stat status {};
  if (!StatusOf(fd_, &status) || status.st_size <= sent_) return;
  std::vector<char> piece(static_cast<size_t>(std::min(kPieceBytes, status.st_size - sent_)));
  while (sent_ < status.st_size) {
    const auto want = std::min(static_cast<off_t>(piece.size()), status.st_size - sent_);
    const ssize_t got = pread(fd_, piece.data(), static_cast<size_t>(want), sent_);
    if (got <= 0) return;
    sent_ += got;
    if (!session.SendAhead(frame_, {}, {piece.data(), static_cast<size_t>(got)})) return;
  }
  // What was sent need not stay in memory; offsets keep counting.
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sent_);
}

}  // namespace smolvm::dispatch
