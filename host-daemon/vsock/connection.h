// One stream between the guest and a socket of the host.
//
// Bytes from the guest go straight from its memory into the socket; what the socket does not take
// waits in a buffer, which the credit keeps within own_buffer. Bytes from the host are read
// straight into the guest's receive buffers, and stay in the socket while there are none.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "host-daemon/vsock/flow.h"
#include "host-daemon/vsock/packet.h"
#include "protocol/base/unique_fd.h"

namespace smolvm::vsock {

// A stream is known by its two ports: the guest has one CID and the host too.
struct Ports {
  uint32_t guest = 0;
  uint32_t host = 0;
  uint64_t Key() const { return uint64_t{guest} << 32 | host; }
};

// Threads: one only.
class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // A stream that the guest asked for (`initiated_by_guest`; the answer is due), or that the host
  // wants (the request is due).
  Connection(uint64_t id, Ports ports, UniqueFd fd, uint32_t own_buffer, bool initiated_by_guest);

  uint64_t id() const { return id_; }
  Ports ports() const { return ports_; }
  int fd() const { return fd_.get(); }
  bool established() const { return established_; }
  Flow& flow() { return flow_; }

  // --- From the guest.
  void OnHeader(const Header& header);
  // The guest accepted a stream that the host wanted. False if that is not what it is waiting for.
  bool OnResponse();
  // False if the guest sent more than it had credit for, or after it said that it would not.
  bool OnData(std::vector<iovec>* payload);
  void OnCreditRequest() { update_due_ = true; }
  // Takes kShutdown's flags. True if the guest has now closed both directions.
  bool OnGuestShutdown(uint32_t flags);

  // --- From the host's socket.
  void OnWritable();
  void OnReadable() { readable_ = true; }
  void OnHangup();
  // Reads into `iov`: the number of bytes, or 0 if there are none now or never more.
  uint32_t ReadHost(const std::vector<iovec>& iov);

  // --- To the guest.
  // The next packet without payload that is due, most urgent first.
  std::optional<Header> TakeControl();
  bool ControlDue() const;
  // The host's socket may hold bytes, and the guest wants them.
  bool HasData() const {
    return established_ && readable_ && !eof_ && !guest_shut_receive_ && !orphan_;
  }
  bool Wants() const { return ControlDue() || (HasData() && flow_.Sendable() > 0); }
  // Has bytes for the guest, which takes none: it should be asked now and then whether it does.
  bool Stalled() const { return HasData() && flow_.Sendable() == 0; }
  void AskForCredit() { request_credit_ = true; }

  // The guest knows this stream no more; what is buffered may still go to the host.
  void Orphan() { orphan_ = true; }
  bool orphan() const { return orphan_; }
  bool Drained() const { return pending_size() == 0; }
  // Neither direction of the socket is of use any more.
  bool SocketDone() const { return eof_ && write_closed_; }
  UniqueFd TakeFd() { return std::move(fd_); }

  // --- For the owner's lists.
  bool queued = false;           // is in the list of those with something for the guest
  uint32_t burst = 1;            // receive buffers to fill with the next read
  Clock::duration poll_delay{};  // doubles while stalled
  Clock::time_point next_poll{};

 private:
  size_t pending_size() const { return pending_.size() - pending_start_; }
  // Writes to the socket; how many bytes it took. A socket that takes none any more takes them all.
  size_t WriteHost(const std::vector<iovec>& iov, size_t total);
  void Forwarded(size_t bytes);
  void Buffer(const std::vector<iovec>& rest);
  void CloseWrite();
  void MaybeShutHostWrite();

  const uint64_t id_;
  const Ports ports_;
  UniqueFd fd_;
  Flow flow_;

  bool established_;
  bool orphan_ = false;
  bool readable_ = false;  // edge-triggered: until a read finds nothing
  bool eof_ = false;       // the host sends no more
  bool hangup_ = false;
  bool write_closed_ = false;  // the host takes no more
  bool guest_shut_send_ = false;
  bool guest_shut_receive_ = false;
  bool host_write_shut_ = false;  // shutdown(SHUT_WR) has been passed on

  bool request_due_ = false;
  bool response_due_ = false;
  bool update_due_ = false;
  bool request_credit_ = false;
  uint32_t shutdown_told_ = 0;

  std::vector<uint8_t> pending_;  // bytes for the host from pending_start_ on
  size_t pending_start_ = 0;
};

}  // namespace smolvm::vsock
