#include "host-daemon/vsock/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace smolvm::vsock {
namespace {

uint64_t Sum(const std::vector<iovec>& v) {
  uint64_t total = 0;
  for (const iovec& piece : v) total += piece.iov_len;
  return total;
}

bool Temporary(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

Connection::Connection(uint64_t id, Ports ports, UniqueFd fd, uint32_t own_buffer,
                       bool initiated_by_guest)
    : id_(id),
      ports_(ports),
      fd_(std::move(fd)),
      flow_(own_buffer),
      established_(initiated_by_guest),
      request_due_(!initiated_by_guest),
      response_due_(initiated_by_guest) {}

void Connection::OnHeader(const Header& header) { flow_.OnHeader(header); }

bool Connection::OnResponse() {
  if (established_ || request_due_) return false;
  established_ = true;
  return true;
}

bool Connection::OnData(std::vector<iovec>* payload) {
  const uint64_t bytes = Sum(*payload);
  if (!established_ || guest_shut_send_ || bytes > UINT32_MAX ||
      !flow_.OnReceived(static_cast<uint32_t>(bytes))) {
    return false;
  }
  size_t written = 0;
  if (Drained()) written = WriteHost(*payload, bytes);
  if (written < bytes) {
    Skip(payload, written);
    Buffer(*payload);
  }
  return true;
}

void Connection::Buffer(const std::vector<iovec>& rest) {
  if (pending_start_ > 0 && pending_start_ >= pending_.size() / 2) {
    pending_.erase(pending_.begin(),
                   pending_.begin() + static_cast<std::ptrdiff_t>(pending_start_));
    pending_start_ = 0;
  }
  for (const iovec& piece : rest) {
    const uint8_t* from = static_cast<const uint8_t*>(piece.iov_base);
    pending_.insert(pending_.end(), from, from + piece.iov_len);
  }
}

size_t Connection::WriteHost(const std::vector<iovec>& iov, size_t total) {
  size_t done = 0;
  size_t first = 0;
  while (done < total && !write_closed_) {
    const size_t pieces = std::min<size_t>(iov.size() - first, IOV_MAX);
    size_t want = 0;
    for (size_t i = 0; i < pieces; ++i) want += iov[first + i].iov_len;
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(iov.data() + first);
    message.msg_iovlen = pieces;
    const ssize_t n = sendmsg(fd_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0) {
      if (!Temporary(errno)) CloseWrite();
      break;
    }
    done += static_cast<size_t>(n);
    if (static_cast<size_t>(n) < want) break;
    first += pieces;
  }
  if (write_closed_) done = total;
  Forwarded(done);
  return done;
}

void Connection::Forwarded(size_t bytes) {
  flow_.OnForwarded(static_cast<uint32_t>(bytes));
  if (flow_.UpdateDue()) update_due_ = true;
}

void Connection::CloseWrite() {
  write_closed_ = true;
  const size_t dropped = pending_size();
  pending_ = {};
  pending_start_ = 0;
  Forwarded(dropped);
}

void Connection::OnWritable() {
  if (pending_size() > 0) {
    std::vector<iovec> iov = {{pending_.data() + pending_start_, pending_size()}};
    const size_t written = WriteHost(iov, iov[0].iov_len);
    // WriteHost clears the buffer if the socket is closed.
    if (!write_closed_) pending_start_ += written;
    if (pending_size() == 0) {
      pending_ = {};  // an idle stream holds no memory
      pending_start_ = 0;
    }
  }
  MaybeShutHostWrite();
}

void Connection::MaybeShutHostWrite() {
  if (!guest_shut_send_ || !Drained() || host_write_shut_) return;
  host_write_shut_ = true;
  shutdown(fd_.get(), SHUT_WR);
}

bool Connection::OnGuestShutdown(uint32_t flags) {
  if (flags & kShutdownSend) guest_shut_send_ = true;
  if ((flags & kShutdownReceive) && !guest_shut_receive_) {
    guest_shut_receive_ = true;
    shutdown(fd_.get(), SHUT_RD);
    if (hangup_) eof_ = true;
  }
  MaybeShutHostWrite();
  return guest_shut_send_ && guest_shut_receive_;
}

void Connection::OnHangup() {
  hangup_ = true;
  // After our own shutdown in both directions a Unix socket reports a hangup too; there is nothing
  // to read then, and eof_ follows from the read.
  readable_ = true;
  if (!host_write_shut_) CloseWrite();
  if (guest_shut_receive_) eof_ = true;
}

uint32_t Connection::ReadHost(const std::vector<iovec>& iov) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(iov.data());
  message.msg_iovlen = iov.size();
  const ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  if (n > 0) return static_cast<uint32_t>(n);
  if (n < 0 && errno == EINTR) return 0;
  readable_ = false;
  if (n == 0) {
    eof_ = true;
    if (hangup_) write_closed_ = true;
  } else if (!Temporary(errno)) {
    eof_ = true;
    CloseWrite();
  }
  return 0;
}

bool Connection::ControlDue() const {
  const uint32_t shutdown_due = (eof_ ? kShutdownSend : 0) | (write_closed_ ? kShutdownReceive : 0);
  if (orphan_) return false;
  return request_due_ || response_due_ ||
         (established_ &&
          (update_due_ || request_credit_ || (shutdown_due & ~shutdown_told_) != 0));
}

std::optional<Header> Connection::TakeControl() {
  Header h;
  if (std::exchange(request_due_, false)) {
    h.op = Op::kRequest;
  } else if (std::exchange(response_due_, false)) {
    h.op = Op::kResponse;
  } else if (!ControlDue()) {
    return std::nullopt;
  } else if (const uint32_t now =
                 (eof_ ? kShutdownSend : 0) | (write_closed_ ? kShutdownReceive : 0);
             now & ~shutdown_told_) {
    shutdown_told_ |= now;
    h.op = Op::kShutdown;
    h.flags = shutdown_told_;
  } else if (std::exchange(request_credit_, false)) {
    flow_.OnRequested();
    h.op = Op::kCreditRequest;
  } else {
    h.op = Op::kCreditUpdate;
  }
  update_due_ = false;  // every header carries the counters
  return h;
}

}  // namespace smolvm::vsock
